// SPDX-License-Identifier: MIT
// A session file, as it is and with the checksum that would belong to it, into caches of three layouts: what is refused
// changes nothing, and what is written of what was accepted is read again.
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/hash64.hpp>
#include <kvdecode/decode/decoder.hpp>
#include <kvdecode/io/session.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.hpp"
#include "session_model.hpp"

namespace {

using namespace kvdecode;
using kvdecode::detail::NamedWords;
using kvdecode::detail::SessionContents;
using kvdecode::detail::SessionImage;

template <class D>
std::string file_of(const D& decoder, std::vector<NamedWords> states = {}) {
  std::string file;
  const DecoderRecord<float> record = decoder.record();
  const SessionImage image(record, std::move(states));
  for (const std::span<const std::byte> part : image.parts()) file += fuzz::as_text(part);
  return file;
}

template <class D>
void restore(std::span<const std::byte> file, const std::shared_ptr<const void>& owner, D& decoder,
             Sampling<>& sampling) {
  SessionContents contents(file, owner, "fuzz.session");
  if (contents.n_states() == 0)
    kvdecode::detail::restore_from(contents, decoder);
  else
    kvdecode::detail::restore_from(contents, decoder, sampling);
}

template <class Cache>
void try_layout(const fuzz::HeapBytes& heap, const Transformer<float>& transformer,
                typename Cache::Options options) {
  Decoder decoder(transformer, Cached<Cache>{.max_seq_len = 40, .cache = options});
  Sampling<> sampling;
  const std::string before = file_of(decoder);
  if (!fuzz::accepts([&] { restore(heap.bytes, heap.owner, decoder, sampling); })) {
    fuzz::require(file_of(decoder) == before, "what is refused changes nothing");
    return;
  }
  using State = SessionState<Sampling<>>;
  const std::string written = file_of(decoder, {{State::name(), State::words(sampling)}});
  const fuzz::HeapBytes again(
      std::span(reinterpret_cast<const std::uint8_t*>(written.data()), written.size()));
  Decoder other(transformer, Cached<Cache>{.max_seq_len = 40, .cache = options});
  Sampling<> other_sampling;
  restore(again.bytes, again.owner, other, other_sampling);
  fuzz::require(file_of(other) == file_of(decoder) && other_sampling.engine() == sampling.engine(),
                "what is written is read again");
  fuzz::require(other.cache().kv_len() <= other.kv_len() && other.kv_len() <= 40,
                "a cache is not ahead of its tokens");
  std::mt19937_64 engine = sampling.engine();
  engine();
}

void try_file(const fuzz::HeapBytes& heap) {
  static const Transformer<float> transformer = fuzz::session_model();
  try_layout<ContiguousCache<F32>>(heap, transformer, {});
  try_layout<PagedCache<4, F32>>(heap, transformer, {});
  try_layout<SlidingWindowCache<F32>>(heap, transformer, {.slack = 1, .max_append = 2});
}

/// The file as whoever lies would seal it.
void seal(const fuzz::HeapBytes& heap) {
  const std::size_t place = kvdecode::detail::checksum_place(fuzz::as_text(heap.bytes));
  if (place == 0) return;
  std::byte* const digits = heap.owner.get() + place;
  std::memset(digits, '0', 16);
  Hash64 hash;
  hash.add(heap.bytes);
  std::memcpy(digits, kvdecode::detail::hexadecimal(hash.value()).data(), 16);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  fuzz::within(128 * size + (std::size_t{1} << 18), [&] {
    try_file(heap);
    seal(heap);
    try_file(heap);
  });
  return 0;
}
