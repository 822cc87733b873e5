// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/chat.hpp> - a conversation with a model. Each turn the whole conversation is rendered
// anew by the model's chat template, and of its tokens only those run that the cache does not hold already:
// by the bit contract that is the same as running all of them.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/decode/generate.hpp>
#include <kvdecode/pipeline/conversation.hpp>
#include <kvdecode/pipeline/generate_text.hpp>
#include <kvdecode/pipeline/text_model.hpp>
#include <kvdecode/text/chat_template.hpp>
#include <kvdecode/text/tokenizer.hpp>

#include <algorithm>
#include <concepts>
#include <ctime>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// What holds for all answers of a ChatSession.
struct ChatOptions {
  std::vector<TokenId> stop_tokens = {};    // beside those of tokenizer and template
  ChatJson variables = ChatJson::object();  // for the template: enable_thinking, …
  std::function<std::tm()> clock = {};      // for templates that name the day; they see none without
};

/// One answer. The statistics' n_prompt_tokens are those of the whole conversation, question included.
struct ChatAnswer : GenerateResult {
  Index n_reused_tokens = 0;  // of the prompt: in the cache already
  bool is_kept = false;       // in the conversation; not so if it was stopped before its first text
};

namespace detail {

/// How a template ends an answer: by a special token, or else by the text in front of the next question.
struct TurnEnd {
  std::optional<TokenId> token = {};
  std::optional<std::string> text = {};
};

/// @param text what stands between an answer and the next question
inline TurnEnd turn_end(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> tokens = tokenizer.encode(text, {.add_special_tokens = false});
  const auto special =
      std::find_if(tokens.begin(), tokens.end(), [&](TokenId token) { return tokenizer.is_special(token); });
  if (special != tokens.end()) return {.token = *special};
  // The spaces in front of a question may become part of its first token.
  const std::size_t end = text.find_last_not_of(" \n\t\r");
  if (end != std::string_view::npos) text = text.substr(0, end + 1);
  if (text.empty()) return {};
  return {.text = std::string(text)};
}

}  // namespace detail

/// Asks a model and remembers what was said. Owns its decoder, and is used by one thread at a time. Special
/// tokens that a message spells out count as such, as in the models' reference implementation.
///
/// An answer ends at the tokens that end a text, and where the template ends a turn.
template <class D>
class ChatSession {
 public:
  using decoder_type = D;
  using scalar = typename D::scalar;

  /// @param decoder what it holds is dropped as far as no conversation begins with it
  ChatSession(D decoder, Tokenizer tokenizer, ChatTemplate chat_template, ChatOptions options = {})
      : decoder_(std::move(decoder)),
        tokenizer_(std::move(tokenizer)),
        template_(std::move(chat_template)),
        options_(std::move(options)) {
    if (const auto eos = tokenizer_.eos_id()) options_.stop_tokens.push_back(*eos);
    turn_end_ = find_turn_end();
  }
  /// With the model's own template. @throws Error kUnsupported if it has none, and as ChatTemplate does
  ChatSession(D decoder, const TextModel& model, ChatOptions options = {})
      : ChatSession(std::move(decoder), model.tokenizer(), template_of(model),
                    with_stop_tokens(std::move(options), model.stop_tokens())) {}

  /// Asks, and adds question and answer to the conversation. An answer that is stopped, or cut by
  /// max_new_tokens or the end of the context, is kept as far as it was written; if nothing was written when
  /// it was stopped, the conversation stays as it was.
  ///
  /// @param options  stop tokens and strings are added to those of the session
  /// @param on_text  bool(std::string_view), called with each new piece of text, never half a character; false
  /// stops
  /// @throws Error kBadArgument (invalid UTF-8, or the template refuses the conversation), kCacheFull (it does
  /// not fit), and what the template, the decoder or on_text throws: the conversation stays as it was
  template <Sampler<scalar> Picker, std::predicate<std::string_view> OnText>
  ChatAnswer answer(std::string_view question, Picker&& sampler, GenerateOptions options, OnText&& on_text) {
    return run(with_question(conversation_, question), sampler, std::move(options), on_text);
  }
  template <Sampler<scalar> Picker>
  ChatAnswer answer(std::string_view question, Picker&& sampler, GenerateOptions options = {}) {
    return answer(question, sampler, std::move(options), [](std::string_view) { return true; });
  }

  /// Answers the last question anew; the same guarantees, with the old answer in the place of none.
  /// @throws Error kBadArgument if nothing was asked yet, and as answer() does
  template <Sampler<scalar> Picker, std::predicate<std::string_view> OnText>
  ChatAnswer regenerate(Picker&& sampler, GenerateOptions options, OnText&& on_text) {
    if (conversation_.messages.empty()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "chat: nothing has been asked yet");
    Conversation asked = conversation_;
    asked.messages.pop_back();
    return run(std::move(asked), sampler, std::move(options), on_text);
  }

  /// Takes back the last question and its answer; false if there is none.
  bool undo() {
    if (conversation_.messages.empty()) return false;
    conversation_.messages.resize(conversation_.messages.size() - 2);
    forget_the_rest();
    return true;
  }
  /// Takes back all questions and answers. What the model is told before them stays.
  void clear() {
    conversation_.messages.clear();
    forget_the_rest();
  }
  /// What the model is told before the first question; empty: nothing.
  /// @throws as set_conversation()
  void set_system(std::string system) {
    Conversation changed = conversation_;
    changed.system = std::move(system);
    set_conversation(std::move(changed));
  }
  /// Goes on with another conversation.
  /// @throws Error kBadArgument (see check_conversation(); or the template refuses it), kCacheFull (no question
  /// fits after it): the conversation stays as it was
  void set_conversation(Conversation conversation) {
    check_conversation(conversation);
    const std::vector<TokenId> tokens = tokens_of(with_question(conversation, kAnyQuestion));
    require_room(tokens);
    keep_prefix_of(tokens);
    conversation_ = std::move(conversation);
  }

  const Conversation& conversation() const noexcept { return conversation_; }
  /// The tokens that answer(question) starts from: the conversation with the question, and what begins an
  /// answer. @throws as answer() does for them
  std::vector<TokenId> prompt(std::string_view question) const {
    return tokens_of(with_question(conversation_, question));
  }
  /// Its kv_len is the positions used, its max_seq_len those there are.
  const D& decoder() const noexcept { return decoder_; }
  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

 private:
  static constexpr std::string_view kAnyQuestion = "?";  // templates may refuse an empty one

  static ChatTemplate template_of(const TextModel& model) {
    if (model.chat_template().empty()) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, "chat: the model has no chat template");
    return ChatTemplate(model.chat_template());
  }
  static ChatOptions with_stop_tokens(ChatOptions options, const std::vector<TokenId>& tokens) {
    options.stop_tokens.insert(options.stop_tokens.end(), tokens.begin(), tokens.end());
    return options;
  }
  static Conversation with_question(Conversation conversation, std::string_view question) {
    conversation.messages.push_back({"user", std::string(question)});
    return conversation;
  }

  std::string rendered(const Conversation& conversation, bool add_generation_prompt) const {
    ChatInput input;
    const auto add = [&](std::string_view role, const std::string& content) {
      input.messages.push_back({{"role", role}, {"content", content}});
    };
    if (!conversation.system.empty()) add("system", conversation.system);
    for (const ChatMessage& message : conversation.messages) add(message.role, message.content);
    input.add_generation_prompt = add_generation_prompt;
    if (const auto bos = tokenizer_.bos_id()) input.bos_token = tokenizer_.piece(*bos);
    if (const auto eos = tokenizer_.eos_id()) input.eos_token = tokenizer_.piece(*eos);
    input.variables = options_.variables;
    input.clock = options_.clock;
    return template_.render(input);
  }
  std::vector<TokenId> tokens_of(const Conversation& conversation) const {
    for (const ChatMessage& message : conversation.messages)
      if (!detail::is_utf8(message.content)) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "chat: the question is not valid UTF-8 at byte ",
                      detail::utf8_valid_prefix(message.content));
    // The template writes what begins a text.
    std::vector<TokenId> tokens =
        tokenizer_.encode(rendered(conversation, true), {.add_special_tokens = false});
    if (tokens.empty()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "chat: the template makes an empty text of the conversation");
    return tokens;
  }

  detail::TurnEnd find_turn_end() const {
    constexpr std::string_view kAnswer = "an-answer-3c1f", kQuestion = "a-question-3c1f";
    try {
      const std::string text = rendered({.messages = {{"user", "a question"},
                                                      {"assistant", std::string(kAnswer)},
                                                      {"user", std::string(kQuestion)}}},
                                        false);
      const std::size_t answer = text.find(kAnswer);
      if (answer == std::string::npos) return {};
      const std::size_t begin = answer + kAnswer.size(), end = text.find(kQuestion, begin);
      if (end == std::string::npos) return {};
      return detail::turn_end(tokenizer_, std::string_view(text).substr(begin, end - begin));
    } catch (const Error&) {
      return {};  // wants other conversations; the stop tokens remain
    }
  }

  void require_room(std::span<const TokenId> tokens) const {
    if (static_cast<Index>(tokens.size()) > decoder_.max_seq_len()) [[unlikely]]
      detail::raise(ErrorCode::kCacheFull, "chat: the conversation takes ", tokens.size(),
                    " positions, more than max_seq_len ", decoder_.max_seq_len());
  }
  /// Drops what the decoder holds beyond a common beginning; its length. One token stays to be run, since an
  /// answer starts from its logits.
  std::size_t keep_prefix_of(std::span<const TokenId> tokens) {
    const std::span<const TokenId> held = decoder_.tokens();
    const std::size_t n_most = std::min(held.size(), tokens.size() - 1);
    std::size_t n = 0;
    while (n < n_most && held[n] == tokens[n]) ++n;
    decoder_.truncate(static_cast<Index>(n));
    return n;
  }
  /// Drops what the decoder holds of messages that are no longer there.
  void forget_the_rest() {
    try {
      keep_prefix_of(prompt(kAnyQuestion));
    } catch (...) {
      decoder_.clear();  // as good, only slower
    }
  }

  /// Answers the last message.
  template <class Picker, class OnText>
  ChatAnswer run(Conversation asked, Picker& sampler, GenerateOptions options, OnText& on_text) {
    const detail::Stopwatch watch;
    const std::vector<TokenId> tokens = tokens_of(asked);
    require_room(tokens);
    options.stop_tokens.insert(options.stop_tokens.end(), options_.stop_tokens.begin(),
                               options_.stop_tokens.end());
    if (turn_end_.token) options.stop_tokens.push_back(*turn_end_.token);
    if (turn_end_.text) options.stop_strings.push_back(*turn_end_.text);

    ChatAnswer answer;
    const std::size_t n_reused = keep_prefix_of(tokens);
    const double before = watch.seconds();
    static_cast<GenerateResult&>(answer) =
        generate(decoder_, std::span<const TokenId>(tokens).subspan(n_reused), sampler, options,
                 detail::ContinuationPieces(tokenizer_, tokens), on_text);
    answer.n_reused_tokens = static_cast<Index>(n_reused);
    answer.statistics.n_prompt_tokens = static_cast<Index>(tokens.size());
    answer.statistics.time_to_first_token += before;
    answer.statistics.total_time += before;
    const bool was_stopped =
        answer.stop_reason == StopReason::kCallback || answer.stop_reason == StopReason::kCancelled;
    answer.is_kept = !was_stopped || !answer.text.empty();
    if (answer.is_kept) {
      asked.messages.push_back({"assistant", answer.text});
      conversation_ = std::move(asked);
    }
    return answer;
  }

  D decoder_;
  Tokenizer tokenizer_;
  ChatTemplate template_;
  ChatOptions options_;
  Conversation conversation_;
  detail::TurnEnd turn_end_;
};

}  // namespace kvdecode
