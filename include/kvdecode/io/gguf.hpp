// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf.hpp> - reads GGUF files (versions 2 and 3, little-endian): metadata, then what tensors
// there are, then their bytes, all used where they lie. Nothing is believed before it is checked.
#pragma once

#include <kvdecode/io/gguf_metadata.hpp>
#include <kvdecode/io/gguf_type.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/io/safetensors.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

static_assert(std::endian::native == std::endian::little,
              "GGUF files are little-endian and are used in place");

/// A named array: rows of whole blocks, at any alignment. It does not own its bytes or its name.
struct GgufTensor {
  static constexpr int kMaxRank = 4;

  std::string_view name;
  const GgufType* type = nullptr;
  std::array<Index, kMaxRank> extents{};  // outermost first; the last is the length of a row
  int rank = 0;
  std::span<const std::byte> bytes;

  std::span<const Index> shape() const noexcept { return {extents.data(), static_cast<std::size_t>(rank)}; }
};

namespace detail {

/// Reads a file from its beginning. Every step is checked against what is left.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> file, const std::string& source) : file_(file), source_(&source) {}

  std::size_t position() const noexcept { return position_; }
  std::size_t n_left() const noexcept { return file_.size() - position_; }

  template <class... Parts>
  [[noreturn]] void fail(ErrorCode code, const Parts&... parts) const {
    raise(code, *source_, ": at byte ", position_, ": ", parts...);
  }
  /// The next n bytes, which are `what`.
  std::span<const std::byte> take(std::uint64_t n, std::string_view what) {
    if (n > n_left()) [[unlikely]]
      fail(ErrorCode::kBadFile, what, " needs ", n, " bytes, the file has ", n_left(), " more");
    const std::span<const std::byte> bytes = file_.subspan(position_, n);
    position_ += n;
    return bytes;
  }
  template <class T>
  T number(std::string_view what) {
    return load_at<T>(take(sizeof(T), what), 0);
  }
  std::string_view string(std::string_view what) {
    const auto n = number<std::uint64_t>(what);
    return {reinterpret_cast<const char*>(take(n, what).data()), n};
  }
  /// A count of things that take at least min_bytes each.
  std::uint64_t count(std::string_view what, std::uint64_t min_bytes) {
    const auto n = number<std::uint64_t>(what);
    if (n > n_left() / min_bytes) [[unlikely]]
      fail(ErrorCode::kBadFile, what, " is ", n, ", more than ", n_left(), " bytes can hold");
    return n;
  }
  /// Where it began to where it is now.
  std::span<const std::byte> since(std::size_t begin) const {
    return file_.subspan(begin, position_ - begin);
  }

 private:
  std::span<const std::byte> file_;
  const std::string* source_;
  std::size_t position_ = 0;
};

inline GgufValue read_gguf_value(GgufCursor& cursor, std::string_view key) {
  GgufValue value;
  auto type = cursor.number<std::uint32_t>("a value's type");
  if (type == static_cast<std::uint32_t>(GgufValueType::kArray)) {
    value.is_array = true;
    type = cursor.number<std::uint32_t>("an array's type");
    if (type == static_cast<std::uint32_t>(GgufValueType::kArray)) [[unlikely]]
      cursor.fail(ErrorCode::kUnsupported, in_quotes(key), " is an array of arrays");
  }
  value.type = static_cast<GgufValueType>(type);
  const std::optional<std::size_t> element_bytes = n_bytes(value.type);
  const bool is_string = value.type == GgufValueType::kString;
  if (!element_bytes && !is_string) [[unlikely]]
    cursor.fail(ErrorCode::kBadFile, in_quotes(key), " has a value of type ", type, ", which is none");
  // A string takes at least its length.
  if (value.is_array) value.size = cursor.count("an array's length", element_bytes.value_or(8));
  const std::size_t begin = cursor.position();
  if (is_string) {
    for (std::uint64_t i = 0; i < value.size; ++i) cursor.string("a string");
    value.bytes = cursor.since(begin);
  } else {
    value.bytes = cursor.take(value.size * *element_bytes, "a value");
  }
  if (value.type == GgufValueType::kBool)
    for (const std::byte b : value.bytes)
      if (b > std::byte{1}) [[unlikely]]
        cursor.fail(ErrorCode::kBadFile, in_quotes(key), " has a boolean that is neither 0 nor 1");
  return value;
}

struct GgufRecord {
  GgufTensor tensor;
  std::uint64_t offset = 0;  // of its bytes, from the beginning of the data
  std::uint64_t n_bytes = 0;
};

inline GgufRecord read_gguf_record(GgufCursor& cursor) {
  GgufRecord record;
  GgufTensor& tensor = record.tensor;
  tensor.name = cursor.string("a tensor's name");
  const auto rank = cursor.number<std::uint32_t>("a tensor's number of dimensions");
  if (rank > GgufTensor::kMaxRank) [[unlikely]]
    cursor.fail(ErrorCode::kBadFile, "tensor ", in_quotes(tensor.name), " has ", rank,
                " dimensions, at most ", GgufTensor::kMaxRank, " are possible");
  tensor.rank = static_cast<int>(rank);
  for (std::uint32_t i = rank; i-- > 0;) {  // innermost first in files
    const auto extent = cursor.number<std::uint64_t>("a tensor's dimension");
    if (!std::in_range<Index>(extent)) [[unlikely]]
      cursor.fail(ErrorCode::kBadFile, "tensor ", in_quotes(tensor.name), " has a dimension of ", extent,
                  ", beyond 63 bits");
    tensor.extents[i] = static_cast<Index>(extent);
  }
  const auto type = cursor.number<std::uint32_t>("a tensor's type");
  tensor.type = find_gguf_type(type);
  if (tensor.type == nullptr) [[unlikely]]
    cursor.fail(ErrorCode::kUnsupported, "tensor ", in_quotes(tensor.name), " has type ", type,
                ", which is not known");
  const Index row = rank == 0 ? 1 : tensor.extents[rank - 1];
  if (row % tensor.type->block != 0) [[unlikely]]
    cursor.fail(ErrorCode::kBadFile, "tensor ", in_quotes(tensor.name), " has rows of ", row,
                " numbers, not whole blocks of ", tensor.type->block, " (", tensor.type->name, ")");
  record.n_bytes = static_cast<std::uint64_t>(row / tensor.type->block);
  bool overflows = __builtin_mul_overflow(
      record.n_bytes, static_cast<std::uint64_t>(tensor.type->block_bytes), &record.n_bytes);
  std::uint64_t n_numbers = static_cast<std::uint64_t>(row);
  for (std::uint32_t i = 0; i + 1 < rank; ++i) {
    const auto extent = static_cast<std::uint64_t>(tensor.extents[i]);
    overflows |= __builtin_mul_overflow(record.n_bytes, extent, &record.n_bytes);
    overflows |= __builtin_mul_overflow(n_numbers, extent, &n_numbers);
  }
  if (overflows || !std::in_range<Index>(n_numbers) || !std::in_range<Index>(record.n_bytes)) [[unlikely]]
    cursor.fail(ErrorCode::kBadFile, "tensor ", in_quotes(tensor.name), " of shape ", to_text(tensor.shape()),
                " is larger than memory can be");
  record.offset = cursor.number<std::uint64_t>("a tensor's offset");
  return record;
}

/// Checks the records against one another and `data`, and gives them their bytes.
inline void place_gguf_tensors(std::vector<GgufRecord>& records, std::span<const std::byte> data,
                               std::uint64_t alignment, const std::string& source) {
  std::sort(records.begin(), records.end(), [](const GgufRecord& a, const GgufRecord& b) {
    return std::pair(a.offset, a.n_bytes) < std::pair(b.offset, b.n_bytes);
  });
  std::uint64_t covered = 0;
  for (GgufRecord& record : records) {
    const std::string_view name = record.tensor.name;
    if (record.offset % alignment != 0) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), " begins at byte ", record.offset,
            " of the data, not a multiple of the alignment ", alignment);
    if (record.offset > data.size() || record.n_bytes > data.size() - record.offset) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), " of ", record.n_bytes,
            " bytes at byte ", record.offset, " does not lie within the ", data.size(), " bytes of data");
    if (record.n_bytes > 0 && record.offset < covered) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), " begins at byte ", record.offset,
            " of the data, within the tensor before it, which ends at ", covered);
    record.tensor.bytes = data.subspan(record.offset, record.n_bytes);
    covered = std::max(covered, record.offset + record.n_bytes);
  }
}

}  // namespace detail

/// The metadata and tensors of a GGUF file, where they lie. A cheap handle: copies share the memory, which
/// lives as long as the last of them or of what owner() gave away.
class GgufFile {
 public:
  /// Maps the file. O(metadata, tensors), not O(their bytes).
  /// @throws Error kBadFile: missing, malformed or lies; kUnsupported: another version, byte order or an
  /// unknown tensor type; naming the path and what is wrong
  explicit GgufFile(const std::filesystem::path& path) : GgufFile(MappedFile(path)) {}

  /// A file in memory, which `owner` keeps alive; `source` names it in errors.
  GgufFile(std::span<const std::byte> file, std::shared_ptr<const void> owner, const std::string& source)
      : contents_(std::make_shared<const Contents>(read(file, std::move(owner), source))) {}

  const GgufMetadata& metadata() const noexcept { return contents_->metadata; }
  /// All tensors, by name.
  std::span<const GgufTensor> tensors() const noexcept { return contents_->tensors; }
  /// The tensor of that name; nullptr if there is none.
  const GgufTensor* find(std::string_view name) const noexcept {
    const auto found = std::lower_bound(
        tensors().begin(), tensors().end(), name,
        [](const GgufTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return found != tensors().end() && found->name == name ? &*found : nullptr;
  }
  int version() const noexcept { return contents_->version; }
  const std::string& source() const noexcept { return contents_->metadata.source(); }
  /// Keeps names, values and tensors valid.
  const std::shared_ptr<const void>& owner() const noexcept { return contents_->owner; }

 private:
  struct Contents {
    GgufMetadata metadata;
    std::vector<GgufTensor> tensors;
    int version = 0;
    std::shared_ptr<const void> owner;
  };

  explicit GgufFile(const MappedFile& file) : GgufFile(file.bytes(), file.owner(), file.path()) {}

  static Contents read(std::span<const std::byte> file, std::shared_ptr<const void> owner,
                       const std::string& source) {
    using detail::raise;
    detail::GgufCursor cursor(file, source);
    if (std::memcmp(cursor.take(4, "the magic").data(), "GGUF", 4) != 0) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": is not a GGUF file: it does not begin with GGUF");
    const auto version = cursor.number<std::uint32_t>("the version");
    if (version != 2 && version != 3) [[unlikely]] {
      if ((version & 0xffffu) == 0)
        raise(ErrorCode::kUnsupported, source,
              ": is a big-endian GGUF file; little-endian ones are supported");
      raise(ErrorCode::kUnsupported, source, ": is of GGUF version ", version,
            "; versions 2 and 3 are supported");
    }
    // A tensor takes at least the lengths and numbers of its record, a value those of key, type and value.
    constexpr std::uint64_t min_tensor = 8 + 4 + 4 + 8, min_value = 8 + 4 + 1;
    const auto n_tensors = cursor.count("the number of tensors", min_tensor);
    const auto n_values = cursor.count("the number of metadata values", min_value);

    std::vector<GgufMetadata::Entry> entries;
    entries.reserve(n_values);
    for (std::uint64_t i = 0; i < n_values; ++i) {
      const std::string_view key = cursor.string("a key");
      entries.emplace_back(key, detail::read_gguf_value(cursor, key));
    }
    detail::sort_by_unique_name(entries, source, [](const auto& entry) { return entry.first; });
    GgufMetadata metadata(std::move(entries), source);

    std::vector<detail::GgufRecord> records;
    records.reserve(n_tensors);
    for (std::uint64_t i = 0; i < n_tensors; ++i) records.push_back(detail::read_gguf_record(cursor));
    const std::int64_t alignment = metadata.as_integer("general.alignment").value_or(32);
    if (alignment <= 0 || (alignment & (alignment - 1)) != 0) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": general.alignment must be a power of two, got ", alignment);
    const auto step = static_cast<std::uint64_t>(alignment);
    const std::uint64_t padding = (step - cursor.position() % step) % step;
    // A file without tensors may end before the data would begin.
    const bool has_data = padding <= cursor.n_left();
    if (!has_data && !records.empty()) [[unlikely]]
      cursor.fail(ErrorCode::kBadFile, "the file ends before its data");
    const std::span<const std::byte> data =
        has_data ? file.subspan(cursor.position() + padding) : std::span<const std::byte>();
    detail::place_gguf_tensors(records, data, step, source);
    detail::sort_by_unique_name(records, source, [](const auto& record) { return record.tensor.name; });

    Contents contents;
    contents.tensors.reserve(records.size());
    for (const detail::GgufRecord& record : records) contents.tensors.push_back(record.tensor);
    contents.metadata = std::move(metadata);
    contents.version = static_cast<int>(version);
    contents.owner = std::move(owner);
    return contents;
  }

  std::shared_ptr<const Contents> contents_;
};

namespace detail {

/// What a file says of the split that it is part of.
struct GgufSplit {
  std::int64_t number = 0;  // from 0
  std::int64_t count = 1;
  std::int64_t n_tensors = 0;  // in all files
};

inline GgufSplit read_gguf_split(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  GgufSplit split;
  split.count = metadata.as_integer("split.count").value_or(1);
  if (split.count == 0) split.count = 1;  // written so for a whole file
  split.number = metadata.as_integer("split.no").value_or(0);
  split.n_tensors =
      metadata.as_integer("split.tensors.count").value_or(static_cast<std::int64_t>(file.tensors().size()));
  constexpr std::int64_t kMaxShards = 65535;  // the field has 16 bits
  if (split.count < 1 || split.count > kMaxShards || split.number < 0 || split.number >= split.count)
      [[unlikely]]
    raise(ErrorCode::kBadFile, file.source(), ": split.no ", split.number, " of split.count ", split.count,
          " is none");
  return split;
}

/// "-00002-of-00003.gguf" for the second file of three.
inline std::string gguf_shard_suffix(std::int64_t number, std::int64_t count) {
  char text[48];
  std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(number + 1),
                static_cast<int>(count));
  return text;
}

}  // namespace detail

/// The files of a model: the one at `path` and, if it is part of a split, all others of it, which lie in the
/// same folder under the names that splits have (model-00001-of-00003.gguf). The first holds the metadata.
/// @throws Error as GgufFile(); kBadFile if a file of the split is missing; kMismatch if they do not belong
/// together
inline std::vector<GgufFile> open_gguf_files(const std::filesystem::path& path) {
  using detail::raise;
  const GgufFile given(path);
  const detail::GgufSplit split = detail::read_gguf_split(given);
  if (split.count == 1) return {given};
  const std::string name = path.filename().string();
  const std::string suffix = detail::gguf_shard_suffix(split.number, split.count);
  if (!name.ends_with(suffix)) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": is file ", split.number + 1, " of ", split.count,
          " of a split; its name must end with ", suffix, " so that the others can be found");
  const std::string stem = name.substr(0, name.size() - suffix.size());
  std::vector<GgufFile> files;
  std::int64_t n_tensors = 0;
  for (std::int64_t i = 0; i < split.count; ++i) {
    files.push_back(i == split.number
                        ? given
                        : GgufFile(path.parent_path() / (stem + detail::gguf_shard_suffix(i, split.count))));
    const GgufFile& file = files.back();
    const detail::GgufSplit own = detail::read_gguf_split(file);
    if (own.number != i || own.count != split.count || own.n_tensors != split.n_tensors) [[unlikely]]
      raise(ErrorCode::kMismatch, file.source(), ": is file ", own.number + 1, " of ", own.count, " with ",
            own.n_tensors, " tensors in all, expected file ", i + 1, " of ", split.count, " with ",
            split.n_tensors);
    n_tensors += static_cast<std::int64_t>(file.tensors().size());
  }
  if (n_tensors != split.n_tensors) [[unlikely]]
    raise(ErrorCode::kMismatch, path.string(), ": the ", split.count, " files have ", n_tensors,
          " tensors, split.tensors.count says ", split.n_tensors);
  return files;
}

}  // namespace kvdecode
