// SPDX-License-Identifier: MIT
// <kvdecode/io/huge_pages.hpp> - weights copied into memory of the program's own, in huge pages where the system grants
// them: what a mapped file cannot have. A pass then needs few address translations, for the time of one copy and for memory
// that no other process shares.
#pragma once

#include <kvdecode/io/mapped_file.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/weights.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <tuple>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr std::size_t kHugePage = std::size_t{1} << 21;  // bytes, on x86-64 and most others

inline Index stored_row_bytes(const MatrixView& matrix) {
  return visit_format(GgufFormats{}, matrix.format,
                      [&]<class F>() -> Index { return F::row_bytes(matrix.stored_cols()); });
}

/// Memory of its own that begins with a huge page.
class HugePages {
 public:
  /// @throws std::bad_alloc
  explicit HugePages(std::size_t n_bytes) {
    const std::size_t size = (n_bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* const data =
        ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) [[unlikely]]
      throw std::bad_alloc();
    mapping_ = std::make_shared<const Mapping>(data, size + kHugePage);
    std::size_t room = size + kHugePage;
    void* begin = data;
    begin_ = static_cast<std::byte*>(std::align(kHugePage, size, begin, room));
#if defined(MADV_HUGEPAGE)
    ::madvise(begin_, size, MADV_HUGEPAGE);  // advice: without, the pages are small ones
#endif
  }
  std::byte* begin() const noexcept { return begin_; }
  std::shared_ptr<const void> owner() const noexcept { return mapping_; }

 private:
  std::shared_ptr<const Mapping> mapping_;
  std::byte* begin_ = nullptr;
};

}  // namespace detail

/// The same weights, their matrices copied row by row into huge pages, each from a cache line on; vectors stay where they
/// are. O(bytes), once. The answers have the same bits.
/// @throws std::bad_alloc
inline Weights copy_to_huge_pages(Weights weights) {
  // Where each matrix goes, and whether it is there; one that several layers share is copied once.
  struct Place {
    std::size_t offset;
    bool is_copied = false;
  };
  std::map<std::tuple<const std::byte*, Index, Index>, Place> places;
  std::size_t total = 0;
  const auto key = [](const MatrixView& m) { return std::tuple(m.data, m.stored_rows(), m.stride); };
  for_each_matrix(weights, [&](const MatrixView& matrix) {
    if (!places.emplace(key(matrix), Place{total}).second) return;
    const auto bytes = static_cast<std::size_t>(matrix.stored_rows() * detail::stored_row_bytes(matrix));
    total += (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  });
  if (total == 0) return weights;
  const detail::HugePages pages(total);
  for_each_matrix(weights, [&](MatrixView& matrix) {
    Place& place = places.at(key(matrix));
    const Index row_bytes = detail::stored_row_bytes(matrix);
    std::byte* const to = pages.begin() + place.offset;
    if (!std::exchange(place.is_copied, true))
      for (Index row = 0; row < matrix.stored_rows(); ++row)
        std::memcpy(to + row * row_bytes, matrix.data + row * matrix.stride,
                    static_cast<std::size_t>(row_bytes));
    matrix.data = to;
    matrix.stride = row_bytes;
  });
  weights.owners.push_back(pages.owner());
  return weights;
}

}  // namespace kvdecode
