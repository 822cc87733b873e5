// SPDX-License-Identifier: MIT
// <kvdecode/core/view.hpp> - non-owning views of numbers where they lie: a weight matrix or vector in a
// mapped file or on the heap, in its storage format and at any alignment, and rows of scalars in a workspace.
#pragma once

#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// A matrix W of [rows, cols] that maps a vector of `cols` values to one of `rows`: y = W x.
/// Stored row by row; when `transposed`, the stored rows are the columns of W: [cols, rows] in memory.
struct MatrixView {
  FormatId format = FormatId::kF32;
  const std::byte* data = nullptr;  // any alignment
  Index rows = 0;                   // outputs
  Index cols = 0;                   // inputs
  Index stride = 0;                 // bytes from one stored row to the next
  bool transposed = false;

  bool empty() const noexcept { return data == nullptr; }
  Index stored_rows() const noexcept { return transposed ? cols : rows; }
  Index stored_cols() const noexcept { return transposed ? rows : cols; }
};

/// A vector of `size` numbers in a storage format, at any alignment.
struct VectorView {
  FormatId format = FormatId::kF32;
  const std::byte* data = nullptr;
  Index size = 0;

  bool empty() const noexcept { return data == nullptr; }
};

/// Rows of scalars in memory: row i starts at data + i * stride (in elements).
template <class T>
struct RowsView {
  T* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;  // elements from one row to the next

  T* row(Index i) const noexcept { return data + i * stride; }
  operator RowsView<const T>() const noexcept { return {data, rows, cols, stride}; }
};

}  // namespace kvdecode
