// SPDX-License-Identifier: MIT
// Support for the tests of sessions: decoders to stop and go on with, and the bytes of their files.
#pragma once

#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/io/session.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support.hpp"

namespace io_test {

using kvdecode::DecoderRecord;
using kvdecode::Greedy;
using kvdecode::Index;
using kvdecode::Sampling;
using kvdecode::TokenId;
using kvdecode::Transformer;
using kvdecode_test::check_same_bits;
using kvdecode_test::is_refused;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

inline constexpr kvdecode::SamplingOptions kOptions{
    .temperature = 0.9, .top_k = 20, .top_p = 0.95, .seed = 7};

template <class S = float>
Transformer<S> transformer_of(std::string_view words, std::uint64_t seed = 1) {
  const RandomModel model(words, {.seed = seed});
  return Transformer<S>(model.config, model.weights);
}

/// Tokens and the logits that they were sampled from.
template <class S>
struct Continuation {
  std::vector<TokenId> tokens;
  std::vector<S> logits;
};
template <class D, class Picker>
Continuation<typename D::scalar> continued(D& decoder, Picker& sampler, Index n) {
  Continuation<typename D::scalar> result;
  for (Index i = 0; i < n; ++i) {
    const auto logits = i == 0 ? decoder.logits() : decoder.step(result.tokens.back());
    result.logits.insert(result.logits.end(), logits.begin(), logits.end());
    result.tokens.push_back(sampler(logits));
  }
  return result;
}
template <class S>
void check_same(const Continuation<S>& a, const Continuation<S>& b) {
  CHECK(a.tokens == b.tokens);
  check_same_bits(a.logits, b.logits);
}

/// A decoder is stopped in the middle of sampling, another one goes on, with the first one beside it.
template <class From, class To>
void check_session(From from, To to, Index n_prompt = 21) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "session.safetensors";
  Sampling<> sampling(kOptions);
  const auto vocab_size = static_cast<Index>(from.append(random_tokens(n_prompt, 37, 3)).size());
  CHECK(vocab_size == 37);
  continued(from, sampling, 5);
  save_session(path, from, sampling);

  Sampling<> restored({.seed = 99});
  to.append(random_tokens(4, 37, 9));  // something to be forgotten
  const Index n_run = to.statistics().n_tokens_run;
  restore_session(path, to, restored);
  CHECK(std::vector<TokenId>(to.tokens().begin(), to.tokens().end()) ==
        std::vector<TokenId>(from.tokens().begin(), from.tokens().end()));
  to.logits();
  CHECK(to.statistics().n_tokens_run == n_run);  // they were in the file
  CHECK(restored.options().top_k == 20);
  check_same(continued(to, restored, 12), continued(from, sampling, 12));

  // Once more, greedily, without a sampler of the file's.
  restore_session(path, to);
  auto again = std::move(to);
  restore_session(path, from, sampling);
  Greedy greedy;
  check_same(continued(again, greedy, 12), continued(from, greedy, 12));
}

/// The bytes of a session file.
template <class S>
std::string file_of(const DecoderRecord<S>& record, std::vector<kvdecode::detail::NamedWords> states = {}) {
  std::string file;
  const kvdecode::detail::SessionImage image(record, std::move(states));
  for (const std::span<const std::byte> part : image.parts())
    file.append(reinterpret_cast<const char*>(part.data()), part.size());
  return file;
}

/// Restores a session with allocation 0, 1, … refused until there is none to refuse: nothing changes each time, and then
/// it can be restored all the same.
/// @param make  makes a decoder that holds something else  @param sampling  the file's, not of the default options
/// @param check_restored  called with each decoder in the end  @return how many allocations were refused
template <class Failing, class Make, class CheckRestored>
Index check_refused_allocations(const std::filesystem::path& path, const Sampling<>& sampling, Make&& make,
                                CheckRestored&& check_restored) {
  for (Index which = 0;; ++which) {
    CAPTURE(which);
    auto decoder = make();
    const std::string before = file_of(decoder.record());
    Sampling<> restored;
    const bool threw = is_refused<Failing>(which, [&] { restore_session(path, decoder, restored); });
    if (threw) {
      CHECK(file_of(decoder.record()) == before);
      CHECK(restored.engine() == Sampling<>().engine());
      CHECK(restored.options().temperature == Sampling<>().options().temperature);
      restore_session(path, decoder, restored);
    }
    CHECK(restored.engine() == sampling.engine());
    CHECK(restored.options().temperature == sampling.options().temperature);
    check_restored(decoder);
    if (!threw) return which;
  }
}

}  // namespace io_test
