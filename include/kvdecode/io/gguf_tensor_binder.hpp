// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_tensor_binder.hpp> - hands out the tensors of GGUF files as weights.
#pragma once

#include <kvdecode/io/basic_tensor_binder.hpp>
#include <kvdecode/io/gguf.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// GGUF files may drop outermost extents of 1, or have more of them.
struct GgufBinding {
  using File = GgufFile;
  using Tensor = GgufTensor;
  using Formats = GgufFormats;

  static std::optional<FormatId> format(const Tensor& tensor) { return tensor.type->format; }
  static std::string_view stored_as(const Tensor& tensor) { return tensor.type->name; }
  static std::span<const Index> shape(const Tensor& tensor) { return tensor.shape(); }
  static bool has_shape(const Tensor& tensor, std::span<const Index> expected) {
    const std::span<const Index> a = essential(tensor.shape()), b = essential(expected);
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static std::span<const Index> essential(std::span<const Index> shape) {
    while (!shape.empty() && shape.front() == 1) shape = shape.subspan(1);
    return shape;
  }
};
static_assert(TensorBinding<GgufBinding>);

using GgufTensorBinder = BasicTensorBinder<GgufBinding>;

}  // namespace kvdecode
