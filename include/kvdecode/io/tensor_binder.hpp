// SPDX-License-Identifier: MIT
// <kvdecode/io/tensor_binder.hpp> - hands out the tensors of safetensors files as weights.
#pragma once

#include <kvdecode/io/basic_tensor_binder.hpp>
#include <kvdecode/io/safetensors.hpp>

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// Safetensors files have each tensor in the shape that it has in the model.
struct SafetensorsBinding {
  using File = SafetensorsFile;
  using Tensor = SafetensorsTensor;
  using Formats = CoreFormats;

  static std::optional<FormatId> format(const Tensor& tensor) { return format_of(tensor.dtype); }
  static std::string_view stored_as(const Tensor& tensor) { return to_string(tensor.dtype); }
  static std::span<const Index> shape(const Tensor& tensor) { return tensor.shape; }
  static bool has_shape(const Tensor& tensor, std::span<const Index> expected) {
    return std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end());
  }
};
static_assert(TensorBinding<SafetensorsBinding>);

using TensorBinder = BasicTensorBinder<SafetensorsBinding>;

}  // namespace kvdecode
