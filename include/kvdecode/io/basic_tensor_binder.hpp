// SPDX-License-Identifier: MIT
// <kvdecode/io/basic_tensor_binder.hpp> - hands out the tensors of files as weights, by name and with the shape
// that the model needs, and knows afterwards which were not asked for. What differs between file formats is a
// policy.
#pragma once

#include <kvdecode/io/load_report.hpp>
#include <kvdecode/io/safetensors.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// What a binder has to know of a file format.
///
/// | expression | meaning |
/// |---|---|
/// | P::File | a cheap handle of a file: tensors(), source(), owner() |
/// | P::Tensor | one of its tensors: name, bytes of whole rows |
/// | P::Formats | the formats that weights may be stored in |
/// | P::format(tensor) | the format of its numbers; none if weights cannot be used so |
/// | P::stored_as(tensor) | what the files call that format |
/// | P::shape(tensor) | its extents, outermost first, whose product fits in 63 bits |
/// | P::has_shape(tensor, shape) | it has that shape, as the file format understands it |
///
/// Models: SafetensorsBinding, GgufBinding.
template <class P>
concept TensorBinding = requires(const typename P::File& file, const typename P::Tensor& tensor,
                                 std::span<const Index> shape) {
  typename P::Formats;
  file.tensors();
  { file.source() } -> std::convertible_to<std::string>;
  file.owner();
  { tensor.name } -> std::convertible_to<std::string_view>;
  { P::format(tensor) } -> std::same_as<std::optional<FormatId>>;
  { P::stored_as(tensor) } -> std::convertible_to<std::string_view>;
  { P::shape(tensor) } -> std::convertible_to<std::span<const Index>>;
  { P::has_shape(tensor, shape) } -> std::same_as<bool>;
};

namespace detail {

template <Format... Fs>
std::string names_of(FormatList<Fs...>) {
  std::string names;
  (names.append(names.empty() ? "" : ", ").append(Fs::kName), ...);
  return names;
}

}  // namespace detail

/// Views of tensors in place. Every Error names the tensor, what was expected and what was found.
template <TensorBinding P>
class BasicTensorBinder {
 public:
  using File = typename P::File;
  using Tensor = typename P::Tensor;

  /// @param source what errors name: the file, or what lists the files
  explicit BasicTensorBinder(std::string source) : source_(std::move(source)) {}

  /// Adds all tensors of a file.
  /// @throws Error kBadFile if another file has one of them too
  void add(const File& file) {
    files_.push_back(file);  // keeps the names
    for (const Tensor& tensor : file.tensors())
      if (!entries_.try_emplace(tensor.name, Entry{&tensor}).second) [[unlikely]]
        detail::raise(ErrorCode::kBadFile, file.source(), ": tensor ", detail::in_quotes(tensor.name),
                      " stands in another file too");
  }

  /// The tensor of that name, which does not count as used; nullptr if there is none.
  const Tensor* find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : found->second.tensor;
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// @throws Error kMismatch: missing or of another shape; kUnsupported: not in one of P::Formats
  MatrixView matrix(std::string_view name, Index rows, Index cols) {
    return matrix_in(use(name, std::array{rows, cols}), 0, rows, rows, cols);
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
    return matrix_in(use(name, std::array{n, rows, cols}), i * rows, n * rows, rows, cols);
  }
  /// @throws as matrix()
  VectorView vector(std::string_view name, Index size) {
    const Tensor& tensor = use(name, std::array{size});
    return {*P::format(tensor), tensor.bytes.data(), size};
  }
  /// The numbers of a tensor of [size].
  /// @throws as matrix()
  std::vector<double> values(std::string_view name, Index size) {
    const VectorView view = vector(name, size);
    std::vector<double> result;
    visit_format(typename P::Formats{}, view.format, [&]<class F>() {
      for (Index i = 0; i < size; ++i) result.push_back(F::template decode<double>(view.data, i));
    });
    return result;
  }
  /// `name`.weight of [d_out, d_in] and, if the layer has one, `name`.bias of [d_out].
  /// @throws as matrix()
  LinearWeights linear(const std::string& name, Index d_out, Index d_in, bool has_bias) {
    LinearWeights weights;
    weights.matrix = matrix(name + ".weight", d_out, d_in);
    if (has_bias) weights.bias = vector(name + ".bias", d_out);
    return weights;
  }
  /// Outputs [begin, begin + n) of a layer that computes several things at once.
  /// @pre begin is a whole number of blocks of the bias and, if it is transposed, of the matrix
  static LinearWeights outputs_of(const LinearWeights& all, Index begin, Index n) {
    const auto row_bytes = [](FormatId format, Index elements) {
      return visit_format(typename P::Formats{}, format, [&]<class F>() { return F::row_bytes(elements); });
    };
    LinearWeights part = all;
    part.matrix.rows = n;
    part.matrix.data +=
        all.matrix.transposed ? row_bytes(all.matrix.format, begin) : begin * all.matrix.stride;
    if (!all.bias.empty())
      part.bias = {all.bias.format, all.bias.data + row_bytes(all.bias.format, begin), n};
    return part;
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
    const auto head = entries_.find(name);
    const Tensor* const source = find(embedding);
    if (head == entries_.end() || source == nullptr) return;
    const Tensor& tensor = *head->second.tensor;
    if (P::stored_as(tensor) != P::stored_as(*source) || !P::has_shape(tensor, P::shape(*source)) ||
        !std::equal(tensor.bytes.begin(), tensor.bytes.end(), source->bytes.begin())) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": the config ties the head to ",
                    detail::in_quotes(embedding), ", but there is a ", detail::in_quotes(name),
                    " that differs from it");
    head->second.ignored = "equals " + std::string(embedding) + ", to which the config ties it";
  }
  /// Leaves a tensor aside, if it is there.
  void ignore(std::string_view name, std::string_view reason) {
    if (const auto found = entries_.find(name); found != entries_.end()) found->second.ignored = reason;
  }
  /// Leaves aside every tensor whose name begins so.
  void ignore_prefix(std::string_view prefix, std::string_view reason) {
    for (auto& [name, entry] : entries_)
      if (name.starts_with(prefix)) entry.ignored = reason;
  }
  /// Leaves aside every tensor whose name ends so.
  void ignore_suffix(std::string_view suffix, std::string_view reason) {
    for (auto& [name, entry] : entries_)
      if (name.ends_with(suffix)) entry.ignored = reason;
  }

  /// What errors name.
  const std::string& source() const noexcept { return source_; }

  /// Keeps what was handed out alive, and reports it.
  /// @throws Error kMismatch if a tensor was neither used nor ignored
  void finish(Weights& weights, LoadReport& report) const {
    Index n_extra = 0;
    const Tensor* extra = nullptr;
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
                    detail::to_text(P::shape(*extra)), " has no place in this model",
                    n_extra == 1 ? std::string() : ", as have " + std::to_string(n_extra - 1) + " others");
    for (const File& file : files_) {
      weights.owners.push_back(file.owner());
      report.files.push_back(file.source());
    }
  }

 private:
  struct Entry {
    const Tensor* tensor;
    bool is_used = false;
    std::string ignored{};  // why
  };

  /// Rows [first, first + rows) of a tensor that has n_rows of them in all. @pre n_rows > 0
  static MatrixView matrix_in(const Tensor& tensor, Index first, Index n_rows, Index rows, Index cols) {
    const Index row_bytes = static_cast<Index>(tensor.bytes.size()) / n_rows;
    return {*P::format(tensor), tensor.bytes.data() + first * row_bytes, rows, cols, row_bytes, false};
  }

  const Tensor& use(std::string_view name, std::span<const Index> expected) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(name),
                    " is missing, expected one of shape ", detail::to_text(expected));
    const Tensor& tensor = *found->second.tensor;
    if (!P::has_shape(tensor, expected)) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source_, ": tensor ", detail::in_quotes(name), " has shape ",
                    detail::to_text(P::shape(tensor)), ", expected ", detail::to_text(expected));
    if (!P::format(tensor)) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, source_, ": tensor ", detail::in_quotes(name), " is stored as ",
                    P::stored_as(tensor),
                    ", which is not supported (supported: ", detail::names_of(typename P::Formats{}), ")");
    found->second.is_used = true;
    return tensor;
  }

  static void count(const Tensor& tensor, LoadReport& report) {
    const FormatId format = *P::format(tensor);
    std::uint64_t n_numbers = 1;
    for (const Index extent : P::shape(tensor)) n_numbers *= static_cast<std::uint64_t>(extent);
    ++report.n_tensors;
    report.n_parameters += n_numbers;
    report.n_bytes += tensor.bytes.size();
    auto use = std::find_if(report.formats.begin(), report.formats.end(),
                            [&](const FormatUse& known) { return known.format == format; });
    if (use == report.formats.end()) use = report.formats.insert(use, FormatUse{format, 0, 0});
    ++use->n_tensors;
    use->n_bytes += tensor.bytes.size();
  }

  std::string source_;
  std::vector<File> files_;
  std::map<std::string_view, Entry, std::less<>> entries_;
};

}  // namespace kvdecode
