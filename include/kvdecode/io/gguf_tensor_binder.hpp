// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_tensor_binder.hpp> - hands out the tensors of GGUF files as weights, by name and with the
// shape that the model needs, and knows afterwards which were not asked for.
#pragma once

#include <kvdecode/io/gguf.hpp>
#include <kvdecode/io/load_report.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Views of tensors in place. Every Error names the tensor, what was expected and what was found.
class GgufTensorBinder {
 public:
  /// @throws Error kBadFile if two files have a tensor of one name  @pre there is a file
  explicit GgufTensorBinder(std::vector<GgufFile> files)
      : files_(std::move(files)), source_(files_.front().source()) {
    for (const GgufFile& file : files_)
      for (const GgufTensor& tensor : file.tensors())
        if (!entries_.try_emplace(tensor.name, Entry{&tensor}).second) [[unlikely]]
          detail::raise(ErrorCode::kBadFile, file.source(), ": tensor ", detail::in_quotes(tensor.name),
                        " stands in another file too");
  }

  /// The tensor of that name, which does not count as used; nullptr if there is none.
  const GgufTensor* find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : found->second.tensor;
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// @throws Error kMismatch: missing or of another shape; kUnsupported: of a type that weights cannot have
  MatrixView matrix(std::string_view name, Index rows, Index cols) {
    const GgufTensor& tensor = use(name, std::array{rows, cols});
    return {*tensor.type->format, tensor.bytes.data(), rows, cols, row_bytes(tensor, cols), false};
  }
  /// The n matrices that lie one after another in a tensor of [n, rows, cols]. @throws as matrix()
  std::vector<MatrixView> matrices(std::string_view name, Index n, Index rows, Index cols) {
    const GgufTensor& tensor = use(name, std::array{n, rows, cols});
    const Index stride = row_bytes(tensor, cols);
    std::vector<MatrixView> views;
    for (Index i = 0; i < n; ++i)
      views.push_back(
          {*tensor.type->format, tensor.bytes.data() + i * rows * stride, rows, cols, stride, false});
    return views;
  }
  /// @throws as matrix()
  VectorView vector(std::string_view name, Index size) {
    const GgufTensor& tensor = use(name, std::array{size});
    return {*tensor.type->format, tensor.bytes.data(), size};
  }
  /// `name`.weight of [d_out, d_in] and, if it is there, `name`.bias of [d_out]: no key says whether a model
  /// has biases. @throws as matrix()
  LinearWeights linear(const std::string& name, Index d_out, Index d_in) {
    LinearWeights weights;
    weights.matrix = matrix(name + ".weight", d_out, d_in);
    if (contains(name + ".bias")) weights.bias = vector(name + ".bias", d_out);
    return weights;
  }
  /// `name`.weight of [size] and, if it is there, `name`.bias of [size]. @throws as matrix()
  NormWeights norm(const std::string& name, Index size) {
    NormWeights weights;
    weights.weight = vector(name + ".weight", size);
    if (contains(name + ".bias")) weights.bias = vector(name + ".bias", size);
    return weights;
  }
  /// The numbers of a tensor of [size]. @throws as matrix()
  std::vector<double> values(std::string_view name, Index size) {
    const VectorView view = vector(name, size);
    std::vector<double> result;
    visit_format(GgufFormats{}, view.format, [&]<class F>() {
      for (Index i = 0; i < size; ++i) result.push_back(F::template decode<double>(view.data, i));
    });
    return result;
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
    const GgufTensor* extra = nullptr;
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
                    detail::to_text(extra->shape()), " has no place in a model of this architecture",
                    n_extra == 1 ? std::string() : ", as have " + std::to_string(n_extra - 1) + " others");
    for (const GgufFile& file : files_) {
      weights.owners.push_back(file.owner());
      report.files.push_back(file.source());
    }
  }

 private:
  struct Entry {
    const GgufTensor* tensor;
    bool is_used = false;
    std::string ignored{};  // why
  };

  static Index row_bytes(const GgufTensor& tensor, Index cols) {
    return cols / tensor.type->block * tensor.type->block_bytes;
  }
  /// Extents without outermost ones, which writers may drop.
  static std::span<const Index> essential(std::span<const Index> shape) {
    while (!shape.empty() && shape.front() == 1) shape = shape.subspan(1);
    return shape;
  }

  const GgufTensor& use(std::string_view name, std::span<const Index> expected) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(name),
                    " is missing, expected one of shape ", detail::to_text(expected));
    const GgufTensor& tensor = *found->second.tensor;
    const std::span<const Index> a = essential(tensor.shape()), b = essential(expected);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(name), " has shape ",
                    detail::to_text(tensor.shape()), ", expected ", detail::to_text(expected));
    if (!tensor.type->format) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, source_, ": tensor ", detail::in_quotes(name), " is stored as ",
                    tensor.type->name, ", which is not supported (supported: ", supported_types(), ")");
    found->second.is_used = true;
    return tensor;
  }

  static std::string supported_types() {
    std::string names;
    for (const GgufType& type : detail::kGgufTypes)
      if (type.format) names.append(names.empty() ? "" : ", ").append(type.name);
    return names;
  }

  static void count(const GgufTensor& tensor, LoadReport& report) {
    const FormatId format = *tensor.type->format;
    ++report.n_tensors;
    report.n_parameters += tensor.bytes.size() / static_cast<std::uint64_t>(tensor.type->block_bytes) *
                           static_cast<std::uint64_t>(tensor.type->block);
    report.n_bytes += tensor.bytes.size();
    auto use = std::find_if(report.formats.begin(), report.formats.end(),
                            [&](const FormatUse& known) { return known.format == format; });
    if (use == report.formats.end()) use = report.formats.insert(use, FormatUse{format, 0, 0});
    ++use->n_tensors;
    use->n_bytes += tensor.bytes.size();
  }

  std::vector<GgufFile> files_;
  std::string source_;
  std::map<std::string_view, Entry, std::less<>> entries_;
};

}  // namespace kvdecode
