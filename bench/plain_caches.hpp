// SPDX-License-Identifier: MIT
// Caches as one writes them first, the baselines of those of the library: a list of numbers for each head, and a matrix
// of Eigen for each layer. Numbers as F32; no formats, no pages, nothing shared, and a shift that forgets at which
// position its keys were rotated.
#pragma once

#include <kvdecode/cache/concepts.hpp>

#include <Eigen/Core>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace bench {

using kvdecode::Index;
using kvdecode::RowsView;

/// A list of numbers for the keys of each head, and one for its values.
class LoopCache {
 public:
  using KeyFormat = kvdecode::F32;
  using ValueFormat = kvdecode::F32;
  using Runs = std::array<kvdecode::KvRun<kvdecode::F32>, 1>;
  struct Options {};
  struct Head {
    std::vector<float> keys, values;
  };
  using Record = std::vector<std::vector<Head>>;

  LoopCache(kvdecode::KvShape shape, Index, Options = {}) : shape_(std::move(shape)) {
    for (Index layer = 0; layer < shape_.n_layers(); ++layer)
      layers_.emplace_back(static_cast<std::size_t>(shape_[layer].n_kv_heads));
  }

  void reserve(Index n) { n_new_ = n; }
  void append(Index layer, RowsView<const float> k, RowsView<const float> v) {
    Index head = 0;
    for (Head& to : layers_[static_cast<std::size_t>(layer)]) {
      for (Index i = 0; i < k.rows; ++i) {
        for (Index j = 0; j < k_dim(); ++j) to.keys.push_back(k.row(i)[head * k_dim() + j]);
        for (Index j = 0; j < k_dim(); ++j) to.values.push_back(v.row(i)[head * k_dim() + j]);
      }
      ++head;
    }
  }
  void commit() { kv_len_ += n_new_; }
  void truncate(Index n) {
    for_each_list([&](std::vector<float>& list) { list.resize(static_cast<std::size_t>(n * k_dim())); });
    kv_len_ = n;
  }
  void clear() { truncate(0); }
  void shift(Index first, Index delta) {
    for_each_list([&](std::vector<float>& list) {
      list.erase(list.begin() + (first + delta) * k_dim(), list.begin() + first * k_dim());
    });
    kv_len_ += delta;
  }
  LoopCache fork() const { return *this; }
  Record record() const { return layers_; }
  void restore(const Record& record) {
    layers_ = record;
    kv_len_ = static_cast<Index>(layers_.front().front().keys.size()) / k_dim();
  }

  const kvdecode::KvShape& shape() const { return shape_; }
  Index kv_len() const { return kv_len_; }
  Runs keys(Index layer, Index head) const { return runs_of(head_of(layer, head).keys); }
  Runs values(Index layer, Index head) const { return runs_of(head_of(layer, head).values); }

 private:
  Index k_dim() const { return shape_[0].k_dim; }
  const Head& head_of(Index layer, Index head) const {
    return layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(head)];
  }
  Runs runs_of(const std::vector<float>& list) const {
    const Index row_bytes = k_dim() * Index{sizeof(float)};
    return {{{0, kv_len_, reinterpret_cast<const std::byte*>(list.data()), row_bytes, 0}}};
  }
  template <class F>
  void for_each_list(const F& f) {
    for (std::vector<Head>& layer : layers_)
      for (Head& head : layer) {
        f(head.keys);
        f(head.values);
      }
  }

  kvdecode::KvShape shape_;
  Record layers_;
  Index kv_len_ = 0;
  Index n_new_ = 0;
};

/// A matrix of keys for each layer, and one of values: rows are positions, heads lie side by side.
class EigenCache {
 public:
  using KeyFormat = kvdecode::F32;
  using ValueFormat = kvdecode::F32;
  using Runs = std::array<kvdecode::KvRun<kvdecode::F32>, 1>;
  struct Options {};
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  struct Layer {
    Matrix keys, values;
  };
  using Record = std::vector<Layer>;

  EigenCache(kvdecode::KvShape shape, Index capacity, Options = {}) : shape_(std::move(shape)) {
    for (const kvdecode::LayerKvShape& dims : shape_.layers)
      layers_.push_back(
          {Matrix(capacity, dims.n_kv_heads * dims.k_dim), Matrix(capacity, dims.n_kv_heads * dims.v_dim)});
  }

  void reserve(Index n) { n_new_ = n; }
  void append(Index layer, RowsView<const float> k, RowsView<const float> v) {
    Layer& to = layers_[static_cast<std::size_t>(layer)];
    const auto matrix_of = [](RowsView<const float> rows) {
      return Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>(rows.data, rows.rows, rows.cols,
                                                               Eigen::OuterStride<>(rows.stride));
    };
    to.keys.middleRows(kv_len_, k.rows) = matrix_of(k);
    to.values.middleRows(kv_len_, v.rows) = matrix_of(v);
  }
  void commit() { kv_len_ += n_new_; }
  void truncate(Index n) { kv_len_ = n; }
  void clear() { truncate(0); }
  void shift(Index first, Index delta) {
    const Index n = kv_len_ - first;
    for (Layer& layer : layers_)
      for (Matrix* const rows : {&layer.keys, &layer.values})
        rows->middleRows(first + delta, n) = rows->middleRows(first, n).eval();
    kv_len_ += delta;
  }
  EigenCache fork() const { return *this; }
  Record record() const {
    Record record;
    for (const Layer& layer : layers_)
      record.push_back({layer.keys.topRows(kv_len_), layer.values.topRows(kv_len_)});
    return record;
  }
  void restore(const Record& record) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      kv_len_ = record[i].keys.rows();
      layers_[i].keys.topRows(kv_len_) = record[i].keys;
      layers_[i].values.topRows(kv_len_) = record[i].values;
    }
  }

  const kvdecode::KvShape& shape() const { return shape_; }
  Index kv_len() const { return kv_len_; }
  Runs keys(Index layer, Index head) const {
    return runs_of(layers_[static_cast<std::size_t>(layer)].keys, head);
  }
  Runs values(Index layer, Index head) const {
    return runs_of(layers_[static_cast<std::size_t>(layer)].values, head);
  }

 private:
  Runs runs_of(const Matrix& rows, Index head) const {
    const float* const first = rows.data() + head * shape_[0].k_dim;
    return {{{0, kv_len_, reinterpret_cast<const std::byte*>(first), rows.cols() * Index{sizeof(float)}, 0}}};
  }

  kvdecode::KvShape shape_;
  Record layers_;
  Index kv_len_ = 0;
  Index n_new_ = 0;
};

}  // namespace bench
