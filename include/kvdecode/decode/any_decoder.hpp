// SPDX-License-Identifier: MIT
// <kvdecode/decode/any_decoder.hpp> - a decoder whose strategy and cache are chosen at run time, behind one
// virtual call a step. For command lines and configuration files; programs that know what they want name the
// types.
#pragma once

#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/decode/cache_format.hpp>
#include <kvdecode/decode/decoder.hpp>
#include <kvdecode/decode/record.hpp>

#include <memory>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// Which decoder make_decoder() makes.
struct DecodeOptions {
  enum class Strategy { kRecompute, kCached };
  using CacheFormat = kvdecode::CacheFormat;

  Strategy strategy = Strategy::kCached;
  CacheFormat cache_format = CacheFormat::kNative;  // with either strategy: both then give the same bits
  Index max_seq_len = 0;                            // positions; 0: the model's
  Index prefill_chunk = 512;                        // tokens a pass
};

/// The interface of Decoder for scalars S.
template <Scalar S>
class AnyDecoder {
 public:
  using scalar = S;

  /// Takes over any decoder of this scalar.
  template <class T, class Strategy>
  AnyDecoder(Decoder<T, Strategy> decoder) requires std::same_as<typename T::scalar, S>
      : self_(std::make_unique<Model<Decoder<T, Strategy>>>(std::move(decoder))) {}

  std::span<const S> append(std::span<const TokenId> tokens, ProgressRef progress = {}) {
    return self_->append(tokens, progress);
  }
  std::span<const S> step(TokenId token) { return self_->append({&token, 1}, {}); }
  std::span<const S> logits() { return self_->logits(); }
  void truncate(Index new_len) { self_->truncate(new_len); }
  void clear() noexcept { self_->clear(); }
  AnyDecoder fork() const { return AnyDecoder(self_->fork()); }
  DecoderRecord<S> record() const { return self_->record(); }
  /// @throws Error kUnsupported also if the decoder's cache is none that takes records
  void restore(const DecoderRecord<S>& record) { self_->restore(record); }
  bool can_append(Index n) const noexcept { return n >= 0 && n <= max_seq_len() - kv_len(); }
  std::span<const TokenId> tokens() const noexcept { return self_->tokens(); }
  Index kv_len() const noexcept { return static_cast<Index>(tokens().size()); }
  Index max_seq_len() const noexcept { return self_->max_seq_len(); }
  DecoderStatistics statistics() const noexcept { return self_->statistics(); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual std::span<const S> append(std::span<const TokenId> tokens, ProgressRef progress) = 0;
    virtual std::span<const S> logits() = 0;
    virtual void truncate(Index new_len) = 0;
    virtual void clear() noexcept = 0;
    virtual std::unique_ptr<Interface> fork() const = 0;
    virtual DecoderRecord<S> record() const = 0;
    virtual void restore(const DecoderRecord<S>& record) = 0;
    virtual std::span<const TokenId> tokens() const noexcept = 0;
    virtual Index max_seq_len() const noexcept = 0;
    virtual DecoderStatistics statistics() const noexcept = 0;
  };
  template <class D>
  struct Model final : Interface {
    explicit Model(D d) : decoder(std::move(d)) {}
    std::span<const S> append(std::span<const TokenId> tokens, ProgressRef progress) override {
      return decoder.append(tokens, progress);
    }
    std::span<const S> logits() override { return decoder.logits(); }
    void truncate(Index new_len) override { decoder.truncate(new_len); }
    void clear() noexcept override { decoder.clear(); }
    std::unique_ptr<Interface> fork() const override { return std::make_unique<Model>(decoder.fork()); }
    DecoderRecord<S> record() const override { return decoder.record(); }
    void restore(const DecoderRecord<S>& record) override {
      if constexpr (requires { decoder.restore(record); })
        decoder.restore(record);
      else
        detail::raise(ErrorCode::kUnsupported, "decoder: its cache takes no record");
    }
    std::span<const TokenId> tokens() const noexcept override { return decoder.tokens(); }
    Index max_seq_len() const noexcept override { return decoder.max_seq_len(); }
    DecoderStatistics statistics() const noexcept override { return decoder.statistics(); }

    D decoder;
  };

  explicit AnyDecoder(std::unique_ptr<Interface> self) noexcept : self_(std::move(self)) {}

  std::unique_ptr<Interface> self_;
};

namespace detail {

template <class Cache, class T>
AnyDecoder<typename T::scalar> make_decoder_with(const T& transformer, const DecodeOptions& options,
                                                 ExecutorRef exec) {
  if (options.strategy == DecodeOptions::Strategy::kRecompute)
    return Decoder(transformer, Recompute<Cache>{options.max_seq_len, options.prefill_chunk, {}}, exec);
  return Decoder(transformer, Cached<Cache>{options.max_seq_len, options.prefill_chunk, {}}, exec);
}

}  // namespace detail

/// The decoder that the options describe, over a GrowingCache.
/// @throws Error kBadArgument, kUnsupported (a format that does not take the model's heads), std::bad_alloc
template <class T>
AnyDecoder<typename T::scalar> make_decoder(const T& transformer, const DecodeOptions& options = {},
                                            ExecutorRef exec = {}) {
  return visit_cache_format<typename T::scalar>(options.cache_format, [&]<class KFormat, class VFormat>() {
    return detail::make_decoder_with<GrowingCache<KFormat, VFormat>>(transformer, options, exec);
  });
}

}  // namespace kvdecode
