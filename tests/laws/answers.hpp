// SPDX-License-Identifier: MIT
// <laws/answers.hpp> - the logits after a sequence and after its beginnings, each computed from nothing: what
// every other way of decoding has to give, to the bit. No test framework: laws return texts.
#pragma once

#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode_laws {

using kvdecode::ExecutorRef;
using kvdecode::Index;
using kvdecode::TokenId;

/// Logits by the number of tokens they come after.
template <class S>
class Answers {
 public:
  void add(Index length, std::span<const S> logits) {
    rows_[length] = std::vector<S>(logits.begin(), logits.end());
  }
  /// Null if nobody has asked for this length.
  const std::vector<S>* find(Index length) const {
    const auto found = rows_.find(length);
    return found == rows_.end() ? nullptr : &found->second;
  }
  const std::map<Index, std::vector<S>>& rows() const { return rows_; }

 private:
  std::map<Index, std::vector<S>> rows_;
};

/// Adds the answers after the first n tokens, for each n of `lengths` that is not there yet: by definition,
/// Recompute over a ContiguousCache of these formats, in one pass on the calling thread.
template <class KFormat, class VFormat = KFormat, class T>
void add_answers(Answers<typename T::scalar>& answers, const T& transformer, std::span<const TokenId> tokens,
                 const std::vector<Index>& lengths) {
  kvdecode::Decoder decoder(transformer, kvdecode::Recompute<kvdecode::ContiguousCache<KFormat, VFormat>>{
                                             .max_seq_len = static_cast<Index>(tokens.size()),
                                             .prefill_chunk = static_cast<Index>(tokens.size())});
  for (const Index n : lengths) {
    if (answers.find(n) != nullptr) continue;
    decoder.clear();
    answers.add(n, decoder.append(tokens.first(static_cast<std::size_t>(n))));
  }
}

/// 1, 2, …, n.
inline std::vector<Index> lengths_up_to(Index n) {
  std::vector<Index> lengths;
  for (Index i = 1; i <= n; ++i) lengths.push_back(i);
  return lengths;
}

/// Compares logits with answers, byte by byte, and remembers the first difference.
template <class S>
class Comparison {
 public:
  explicit Comparison(const Answers<S>& answers) : answers_(answers) {}

  /// Nothing happens if there is no answer for this length.
  void operator()(Index length, std::span<const S> logits, std::string_view how) {
    const std::vector<S>* expected = answers_.find(length);
    if (!text_.empty() || expected == nullptr) return;
    if (logits.size() != expected->size()) {
      std::ostringstream text;
      text << how << ", after " << length << " tokens: " << logits.size() << " logits, expected "
           << expected->size();
      text_ = text.str();
      return;
    }
    if (std::memcmp(logits.data(), expected->data(), logits.size_bytes()) != 0)
      describe(length, logits, *expected, how);
  }
  void fail(std::string_view text) {
    if (text_.empty()) text_ = text;
  }
  bool failed() const { return !text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  void describe(Index length, std::span<const S> logits, const std::vector<S>& expected,
                std::string_view how) {
    std::size_t n_different = 0, first = 0;
    for (std::size_t i = logits.size(); i-- > 0;) {
      if (std::memcmp(&logits[i], &expected[i], sizeof(S)) == 0) continue;
      ++n_different;
      first = i;
    }
    std::ostringstream text;
    text.precision(17);
    text << how << ", after " << length << " tokens: " << n_different << " of " << logits.size()
         << " logits differ; the first, " << first << ": " << static_cast<double>(logits[first])
         << ", expected " << static_cast<double>(expected[first]);
    text_ = text.str();
  }

  const Answers<S>& answers_;
  std::string text_;
};

}  // namespace kvdecode_laws
