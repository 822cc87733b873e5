// SPDX-License-Identifier: MIT
// <kvdecode/io/tensor_binder.hpp> - hands out the tensors of safetensors files as weights, by name and with
// the shape that the model needs, and knows afterwards which were not asked for.
#pragma once

#include <kvdecode/io/load_report.hpp>
#include <kvdecode/io/safetensors.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Views of tensors in place. Every Error names the tensor, what was expected and what was found.
class TensorBinder {
 public:
  /// @param source what errors name: the file, or the index of the files
  explicit TensorBinder(std::string source) : source_(std::move(source)) {}

  /// Adds all tensors of a file.
  /// @throws Error kBadFile if another file has one of them too
  void add(const SafetensorsFile& file) {
    files_.push_back(file);  // keeps the names
    for (const SafetensorsTensor& tensor : file.tensors())
      if (!entries_.try_emplace(tensor.name, Entry{&tensor}).second) [[unlikely]]
        detail::raise(ErrorCode::kBadFile, file.source(), ": tensor ", detail::in_quotes(tensor.name),
                      " stands in another file too");
  }

  bool contains(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  /// @throws Error kMismatch: missing or of another shape; kUnsupported: not f64, f32, f16 or bf16
  MatrixView matrix(std::string_view name, Index rows, Index cols) {
    const auto [tensor, format] = use(name, std::array{rows, cols});
    const Index row_bytes = static_cast<Index>(tensor->bytes.size()) / rows;
    return {format, tensor->bytes.data(), rows, cols, row_bytes, false};
  }
  /// The same, of a tensor that holds W^T: [cols, rows].
  /// @throws as matrix()
  MatrixView transposed(std::string_view name, Index rows, Index cols) {
    MatrixView w = matrix(name, cols, rows);
    std::swap(w.rows, w.cols);
    w.transposed = true;
    return w;
  }
  /// Matrix i of a tensor of n: [n, rows, cols].
  /// @throws as matrix()
  MatrixView matrix_of(std::string_view name, Index i, Index n, Index rows, Index cols) {
    const auto [tensor, format] = use(name, std::array{n, rows, cols});
    const Index row_bytes = static_cast<Index>(tensor->bytes.size()) / (n * rows);
    return {format, tensor->bytes.data() + i * rows * row_bytes, rows, cols, row_bytes, false};
  }
  /// @throws as matrix()
  VectorView vector(std::string_view name, Index size) {
    const auto [tensor, format] = use(name, std::array{size});
    return {format, tensor->bytes.data(), size};
  }
  /// `name`.weight of [d_out, d_in] and, if the layer has one, `name`.bias of [d_out].
  /// @throws as matrix()
  LinearWeights linear(const std::string& name, Index d_out, Index d_in, bool has_bias) {
    LinearWeights weights;
    weights.matrix = matrix(name + ".weight", d_out, d_in);
    if (has_bias) weights.bias = vector(name + ".bias", d_out);
    return weights;
  }
  /// `name`.weight and, if the norm has one, `name`.bias, both of [size].
  /// @throws as matrix()
  NormWeights norm(const std::string& name, Index size, bool has_bias) {
    NormWeights weights;
    weights.weight = vector(name + ".weight", size);
    if (has_bias) weights.bias = vector(name + ".bias", size);
    return weights;
  }
  /// The head `name` of a model that ties it to the token embedding: files may repeat it, as long as it is
  /// the same. (Where it differs, transformers 4 ties and 5 does not.)
  /// @throws Error kMismatch if it is there and differs
  void tied_head(std::string_view name, std::string_view embedding) {
    const auto head = entries_.find(name), source = entries_.find(embedding);
    if (head == entries_.end() || source == entries_.end()) return;
    const SafetensorsTensor &a = *head->second.tensor, &b = *source->second.tensor;
    if (a.dtype != b.dtype || a.shape != b.shape ||
        !std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin())) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": the config ties the head to ",
                    detail::in_quotes(embedding), ", but there is a ", detail::in_quotes(name),
                    " that differs from it");
    head->second.ignored = "equals " + std::string(embedding) + ", to which the config ties it";
  }
  /// Leaves a tensor aside, if it is there.
  void ignore(std::string_view name, std::string_view reason) {
    if (const auto found = entries_.find(name); found != entries_.end()) found->second.ignored = reason;
  }
  /// Leaves aside every tensor whose name ends so.
  void ignore_suffix(std::string_view suffix, std::string_view reason) {
    for (auto& [name, entry] : entries_)
      if (name.ends_with(suffix)) entry.ignored = reason;
  }

  /// Keeps what was handed out alive, and reports it.
  /// @throws Error kMismatch if a tensor was neither used nor ignored
  void finish(Weights& weights, LoadReport& report) const {
    Index n_extra = 0;
    const SafetensorsTensor* extra = nullptr;
    for (const auto& [name, entry] : entries_) {
      if (entry.is_used) {
        count(*entry.tensor, report);
      } else if (!entry.ignored.empty()) {
        report.ignored_tensors.push_back({std::string(name), entry.ignored});
      } else if (n_extra++ == 0) {
        extra = entry.tensor;
      }
    }
    if (extra != nullptr) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(extra->name), " of shape ",
                    detail::to_text(extra->shape), " has no place in the model of this config",
                    n_extra == 1 ? std::string() : ", as have " + std::to_string(n_extra - 1) + " others");
    for (const SafetensorsFile& file : files_) {
      weights.owners.push_back(file.owner());
      report.files.push_back(file.source());
    }
  }

 private:
  struct Entry {
    const SafetensorsTensor* tensor;
    bool is_used = false;
    std::string ignored{};  // why
  };

  std::pair<const SafetensorsTensor*, FormatId> use(std::string_view name, std::span<const Index> expected) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(name),
                    " is missing, expected one of shape ", detail::to_text(expected));
    const SafetensorsTensor& tensor = *found->second.tensor;
    if (!std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end())) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(name), " has shape ",
                    detail::to_text(tensor.shape), ", expected ", detail::to_text(expected));
    const std::optional<FormatId> format = format_of(tensor.dtype);
    if (!format) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, source_, ": tensor ", detail::in_quotes(name), " has dtype ",
                    to_string(tensor.dtype), ", expected F64, F32, F16 or BF16");
    found->second.is_used = true;
    return {&tensor, *format};
  }

  static void count(const SafetensorsTensor& tensor, LoadReport& report) {
    const FormatId format = *format_of(tensor.dtype);
    ++report.n_tensors;
    report.n_parameters += *n_elements(tensor.shape);
    report.n_bytes += tensor.bytes.size();
    auto use = std::find_if(report.formats.begin(), report.formats.end(),
                            [&](const FormatUse& known) { return known.format == format; });
    if (use == report.formats.end()) use = report.formats.insert(use, FormatUse{format, 0, 0});
    ++use->n_tensors;
    use->n_bytes += tensor.bytes.size();
  }

  std::string source_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string_view, Entry, std::less<>> entries_;
};

}  // namespace kvdecode
