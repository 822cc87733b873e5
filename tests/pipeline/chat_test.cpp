// SPDX-License-Identifier: MIT
#include <kvdecode/pipeline.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;

using Tokens = std::vector<TokenId>;

const std::filesystem::path kShipped = std::filesystem::path(KVDECODE_EXAMPLE_DATA_DIR) / "tiny-shakespeare";

// The shipped model has no template: a conversation is a scene.
constexpr std::string_view kScene = R"({%- for m in messages -%}
{%- if m.role == 'system' %}{{ m.content + '\n\n' }}
{%- elif m.role == 'user' %}{{ 'ROMEO:\n' + m.content + '\n\n' }}
{%- else %}{{ 'JULIET:\n' + m.content + '\n\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'JULIET:\n' }}{% endif -%})";

// Of earlier answers only the first twelve characters remain, as other templates drop what was only thought.
constexpr std::string_view kForgetful = R"({%- for m in messages -%}
{{- ('ROMEO:\n' if m.role == 'user' else 'JULIET:\n') + (m.content if m.role == 'user' else m.content[:12]) + '\n\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'JULIET:\n' }}{% endif -%})";

// Nothing around the messages.
constexpr std::string_view kBare = "{% for m in messages %}{{ m.content }}{% endfor %}";

const TextModel& shipped() {
  static const TextModel model = load_text_model(kShipped);
  return model;
}

template <class S = float, class Strategy = Cached<>>
auto session(std::string_view source, Strategy strategy = {}, ChatOptions options = {}) {
  return ChatSession(Decoder(shipped().transformer<S>(), strategy), shipped().tokenizer(),
                     ChatTemplate(source), std::move(options));
}

/// Draws, and keeps every row of logits.
template <class S>
struct RecordingSampler {
  Sampling<> sampling{SamplingOptions{.temperature = 0.9, .top_k = 50, .seed = 7}};
  std::vector<S> rows;

  TokenId operator()(std::span<const S> logits) {
    rows.insert(rows.end(), logits.begin(), logits.end());
    return sampling(logits);
  }
};

template <class S>
bool same_bits(const std::vector<S>& a, const std::vector<S>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(S)) == 0;
}

const char* const kQuestions[] = {"Good morrow.", "What is love?\nSpeak, and be true.", "O!",
                                  "Farewell, my lady."};

/// Asks in `chat`, and asks a decoder that knows nothing: tokens and logits are the same to the bit.
template <class S, class Session>
ChatAnswer check_turn(Session& chat, std::string_view question, Index max_new_tokens) {
  const Tokens prompt = chat.prompt(question);
  RecordingSampler<S> ours, fresh_sampler;
  const ChatAnswer answer = chat.answer(question, ours, {.max_new_tokens = max_new_tokens});
  Decoder fresh(shipped().transformer<S>(), Cached<>{.prefill_chunk = 31});
  const GenerateResult expected = generate(
      fresh, std::span<const TokenId>(prompt), fresh_sampler,
      {.max_new_tokens = max_new_tokens, .stop_tokens = {0}, .stop_strings = {"\n\nROMEO:"}},
      detail::ContinuationPieces(shipped().tokenizer(), prompt), [](std::string_view) { return true; });
  CHECK(answer.tokens == expected.tokens);
  CHECK(answer.text == expected.text);
  CHECK(answer.statistics.n_prompt_tokens == static_cast<Index>(prompt.size()));
  CHECK_FALSE(answer.text.empty());
  CHECK(same_bits(ours.rows, fresh_sampler.rows));
  return answer;
}

ErrorCode code_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("expected an error");
  return {};
}

}  // namespace

TEST_CASE_TEMPLATE("ChatSession: every answer has the bits of a fresh decoder over the whole conversation", S,
                   float, double) {
  auto cached = session<S>(kScene, Cached<>{.prefill_chunk = 7});
  auto naive = session<S>(kScene, Recompute<>{});
  cached.set_system("Verona. A public place.");
  naive.set_system("Verona. A public place.");
  Index n_run = 0, kv_len = 0;
  for (const char* question : kQuestions) {
    const ChatAnswer answer = check_turn<S>(cached, question, 40);
    // What ran is what was new.
    const Index n_now = answer.statistics.decoder.n_tokens_run - n_run;
    n_run += n_now;
    CHECK(answer.n_reused_tokens <= kv_len);
    kv_len = cached.decoder().kv_len();
    CHECK(n_now == kv_len - answer.n_reused_tokens);
    if (question != kQuestions[0]) CHECK(answer.n_reused_tokens > answer.statistics.n_prompt_tokens / 2);
    check_turn<S>(naive, question, 40);
  }
  CHECK(cached.conversation().messages.size() == 8);
  CHECK(cached.conversation() == naive.conversation());
}

TEST_CASE("ChatSession: a template that rewrites what was said costs time and changes no bit") {
  auto chat = session(kForgetful);
  Index kv_len = 0;
  for (const char* question : kQuestions) {
    const ChatAnswer answer = check_turn<float>(chat, question, 40);
    // The cache held the whole answer, of which the prompt has the beginning.
    if (kv_len != 0) CHECK(answer.n_reused_tokens < kv_len - 20);
    if (kv_len != 0) CHECK(answer.n_reused_tokens > 8);
    kv_len = chat.decoder().kv_len();
  }
}

TEST_CASE("ChatSession: a prompt can be stopped while it is read, and leaves no trace") {
  auto chat = session(kScene, Cached<>{.prefill_chunk = 64});
  chat.set_system("A public place.");
  std::string question;
  while (chat.prompt(question).size() < 200) question += "Wherefore art thou? ";
  const Conversation before = chat.conversation();
  const Index n_kept = chat.decoder().kv_len();
  std::vector<Index> seen;
  auto stops = [&](Index n_done, Index) {
    seen.push_back(n_done);
    return seen.size() < 2;
  };
  GenerateOptions options;
  options.on_prompt = stops;
  const ChatAnswer stopped = chat.answer(question, Greedy{}, options);
  CHECK(seen == std::vector<Index>{64, 128});
  CHECK(stopped.stop_reason == StopReason::kCancelled);
  CHECK_FALSE(stopped.is_kept);
  CHECK(chat.conversation() == before);
  CHECK(chat.decoder().kv_len() == n_kept);
  CHECK(check_turn<float>(chat, question, 20).n_reused_tokens == n_kept);
}

TEST_CASE("ChatSession: an answer that is stopped keeps what was written") {
  auto chat = session(kScene);
  std::string streamed;
  int calls = 0;
  const ChatAnswer answer =
      chat.answer(kQuestions[0], Greedy{}, {.max_new_tokens = 100}, [&](std::string_view piece) {
        streamed += piece;
        return ++calls < 6;
      });
  CHECK(calls == 6);
  CHECK(answer.stop_reason == StopReason::kCallback);
  CHECK(answer.is_kept);
  REQUIRE(chat.conversation().messages.size() == 2);
  CHECK(chat.conversation().messages[1] == ChatMessage{"assistant", streamed});
  check_turn<float>(chat, kQuestions[1], 20);

  std::stop_source source;
  source.request_stop();
  const Conversation before = chat.conversation();
  const ChatAnswer cancelled = chat.answer(kQuestions[2], Greedy{}, {.stop = source.get_token()});
  CHECK(cancelled.stop_reason == StopReason::kCancelled);
  CHECK_FALSE(cancelled.is_kept);
  CHECK(chat.conversation() == before);
  CHECK(chat.answer(kQuestions[2], Greedy{}, {.max_new_tokens = 5}).is_kept);
}

TEST_CASE("ChatSession: an answer that fails leaves the conversation as it was") {
  auto chat =
      session("{% if messages[-1].content == 'forbidden' %}{{ raise_exception('not that') }}{% endif %}" +
              std::string(kScene));
  chat.answer(kQuestions[0], Greedy{}, {.max_new_tokens = 10});
  const Conversation before = chat.conversation();
  const auto thrower = [](std::string_view) -> bool { throw std::runtime_error("the pipe broke"); };
  CHECK_THROWS_WITH_AS(chat.answer(kQuestions[1], Greedy{}, {}, thrower), "the pipe broke",
                       std::runtime_error);
  CHECK(chat.conversation() == before);
  CHECK_THROWS_WITH_AS(chat.regenerate(Greedy{}, {}, thrower), "the pipe broke", std::runtime_error);
  CHECK(chat.conversation() == before);
  CHECK_THROWS_WITH_AS(chat.answer("a\xff", Greedy{}), "chat: the question is not valid UTF-8 at byte 1",
                       Error);
  CHECK_THROWS_WITH_AS(chat.answer("forbidden", Greedy{}), "not that", Error);
  CHECK(code_of([&] { chat.answer("x", Greedy{}, {.max_new_tokens = -1}); }) == ErrorCode::kBadArgument);
  CHECK(chat.conversation() == before);
  check_turn<float>(chat, kQuestions[1], 20);
}

TEST_CASE(
    "ChatSession: a full context ends an answer, refuses the next question, and is left by undo or clear") {
  auto chat = session(kScene, Cached<>{.max_seq_len = 64});
  const ChatAnswer cut = chat.answer(kQuestions[0], Greedy{}, {.max_new_tokens = 1000});
  CHECK(cut.stop_reason == StopReason::kContextFull);
  CHECK(cut.is_kept);
  CHECK(chat.decoder().kv_len() == 64);
  const Conversation before = chat.conversation();
  const std::string n = std::to_string(chat.prompt(kQuestions[1]).size());
  CHECK_THROWS_WITH_AS(chat.answer(kQuestions[1], Greedy{}),
                       ("chat: the conversation takes " + n + " positions, more than max_seq_len 64").c_str(),
                       Error);
  CHECK(code_of([&] { chat.answer(kQuestions[1], Greedy{}); }) == ErrorCode::kCacheFull);
  CHECK(chat.conversation() == before);
  CHECK(chat.undo());
  check_turn<float>(chat, kQuestions[1], 10);
  chat.clear();
  check_turn<float>(chat, kQuestions[1], 10);

  // A prompt that just fits has an answer of one token: its logits are there, but no room to go on from it.
  std::string question;
  while (chat.clear(), chat.prompt(question).size() < 64) question += "a ";
  REQUIRE(chat.prompt(question).size() == 64);
  const ChatAnswer last = chat.answer(question, Greedy{});
  CHECK(last.tokens.size() == 1);
  CHECK(last.stop_reason == StopReason::kContextFull);
  chat.clear();
  CHECK(code_of([&] { chat.answer(question + "a a a", Greedy{}); }) == ErrorCode::kCacheFull);
}

TEST_CASE("ChatSession: regenerate, undo and clear are as if the rest had never been") {
  auto chat = session(kScene);
  CHECK_THROWS_WITH_AS(chat.regenerate(Greedy{}, {}, [](std::string_view) { return true; }),
                       "chat: nothing has been asked yet", Error);
  CHECK_FALSE(chat.undo());
  chat.set_system("A street.");
  const ChatAnswer first = chat.answer(kQuestions[0], Greedy{}, {.max_new_tokens = 30});
  const Conversation after_first = chat.conversation();
  const Index n_run = chat.decoder().statistics().n_tokens_run;
  std::string streamed;
  const ChatAnswer again = chat.regenerate(Greedy{}, {.max_new_tokens = 30}, [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  CHECK(again.text == first.text);
  CHECK(streamed == first.text);
  CHECK(chat.conversation() == after_first);
  // The question was in the cache: its last token ran once more, and the answer.
  CHECK(again.n_reused_tokens == again.statistics.n_prompt_tokens - 1);
  CHECK(again.statistics.decoder.n_tokens_run - n_run == static_cast<Index>(again.tokens.size()));

  RecordingSampler<float> other;
  chat.regenerate(other, {.max_new_tokens = 30}, [](std::string_view) { return true; });
  CHECK(chat.conversation().messages.size() == 2);
  CHECK(chat.conversation() != after_first);

  const Conversation before = chat.conversation();
  check_turn<float>(chat, kQuestions[1], 30);
  CHECK(chat.undo());
  CHECK(chat.conversation() == before);
  // The cache keeps the conversation that remains, and what begins a question.
  const Tokens kept(chat.decoder().tokens().begin(), chat.decoder().tokens().end());
  const Tokens prompt = chat.prompt("");
  CHECK(kept.size() >= prompt.size() / 2);
  CHECK(std::equal(kept.begin(), kept.end(), prompt.begin()));
  check_turn<float>(chat, kQuestions[2], 30);

  chat.clear();
  CHECK(chat.conversation() == Conversation{"A street.", {}});
  CHECK(chat.decoder().kv_len() > 0);  // the system text
  CHECK(chat.decoder().kv_len() < 20);
  check_turn<float>(chat, kQuestions[3], 30);
}

TEST_CASE("ChatSession: a conversation that is loaded goes on as the one that was saved") {
  auto chat = session(kScene);
  chat.set_system("A garden.");
  chat.answer(kQuestions[0], Greedy{}, {.max_new_tokens = 25});
  chat.answer(kQuestions[1], Greedy{}, {.max_new_tokens = 25});
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "kvdecode_chat_test.json";
  save_conversation(chat.conversation(), path);
  auto other = session(kScene);
  other.answer("Something else.", Greedy{}, {.max_new_tokens = 5});
  other.set_conversation(load_conversation(path));
  std::filesystem::remove(path);
  CHECK(other.conversation() == chat.conversation());
  const ChatAnswer a = check_turn<float>(chat, kQuestions[2], 25),
                   b = check_turn<float>(other, kQuestions[2], 25);
  CHECK(a.text == b.text);
}

TEST_CASE("ChatSession: over a decoder restored from a file, a conversation goes on without running again") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "kvdecode-chat-test.session";
  Sampling<> sampling({.temperature = 0.9, .top_k = 50, .seed = 7});
  auto chat = session(kScene);
  for (const int i : {0, 1}) chat.answer(kQuestions[i], sampling, {.max_new_tokens = 20});
  save_session(path, chat.decoder(), sampling);

  Decoder decoder(shipped().transformer(), Cached<PagedCache<16>>{});
  Sampling<> restored;
  restore_session(path, decoder, restored);
  std::filesystem::remove(path);
  ChatSession again(std::move(decoder), shipped().tokenizer(), ChatTemplate(kScene));
  again.set_conversation(chat.conversation());
  const ChatAnswer answer = again.answer(kQuestions[2], restored, {.max_new_tokens = 20});
  const ChatAnswer expected = chat.answer(kQuestions[2], sampling, {.max_new_tokens = 20});
  CHECK(answer.text == expected.text);
  CHECK(answer.tokens == expected.tokens);
  CHECK(answer.n_reused_tokens == expected.n_reused_tokens);
  CHECK(answer.n_reused_tokens > 30);
}

TEST_CASE("ChatSession: a conversation or system text that cannot go on is refused, the present one stays") {
  auto chat =
      session("{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" +
                  std::string(kScene),
              Cached<>{.max_seq_len = 64});
  chat.answer("Hi.", Greedy{}, {.max_new_tokens = 5});
  const Conversation before = chat.conversation();
  CHECK_THROWS_WITH_AS(chat.set_system("Be kind."), "no system here", Error);
  CHECK(code_of([&] { chat.set_conversation({"", {{"user", "x"}}}); }) == ErrorCode::kBadArgument);
  CHECK(code_of([&] {
          chat.set_conversation({"", {{"user", "x"}, {"assistant", std::string(200, 'z')}}});
        }) == ErrorCode::kCacheFull);
  CHECK(chat.conversation() == before);
  check_turn<float>(chat, "And?", 5);
}

TEST_CASE("ChatSession: an answer ends where the template ends a turn, be it by a text") {
  // Greedily, "To be, or not to be" goes on with a text that has "bosom." in it.
  const std::string whole =
      session(kBare).answer("To be, or not to be", Greedy{}, {.max_new_tokens = 60}).text;
  REQUIRE(whole.find("bosom.") != std::string::npos);
  auto chat = session(
      "{% for m in messages %}{{ 'bosom. \n' if not loop.first and m.role == 'user' }}{{ m.content }}"
      "{% endfor %}");
  const ChatAnswer answer = chat.answer("To be, or not to be", Greedy{}, {.max_new_tokens = 60});
  CHECK(answer.stop_reason == StopReason::kStopString);
  CHECK(answer.text == whole.substr(0, whole.find("bosom.")));
  CHECK(chat.conversation().messages[1].content == answer.text);
}

TEST_CASE("ChatSession: an answer ends where the template ends a turn, be it by a special token") {
  const Tokens tokens = session(kBare).answer("To be, or not to be", Greedy{}, {.max_new_tokens = 60}).tokens;
  std::size_t n = 4;  // a token that was not written before
  while (std::find(tokens.begin(), tokens.begin() + static_cast<Index>(n), tokens.at(n)) !=
         tokens.begin() + static_cast<Index>(n))
    ++n;
  TokenizerSpec spec = load_tokenizer_spec(kShipped);
  const std::string piece = spec.tokens[static_cast<std::size_t>(tokens[n])];
  AddedToken added;
  added.id = tokens[n];
  added.content = piece;
  added.special = true;
  spec.added_tokens.push_back(added);
  ChatSession chat(Decoder(shipped().transformer(), Cached<>{}), Tokenizer(spec),
                   ChatTemplate("{% for m in messages %}{{ m.content + ('\n" + piece +
                                "' if m.role == 'assistant' else '') }}{% endfor %}"));
  const ChatAnswer answer = chat.answer("To be, or not to be", Greedy{}, {.max_new_tokens = 60});
  CHECK(answer.stop_reason == StopReason::kStopToken);
  CHECK(answer.tokens == Tokens(tokens.begin(), tokens.begin() + static_cast<Index>(n)));
}

TEST_CASE("ChatSession: the template sees tokens, variables and the day") {
  ChatOptions options;
  options.variables["mood"] = "merry";
  options.clock = [] {
    std::tm time{};
    time.tm_year = 124;
    time.tm_mday = 1;
    return time;
  };
  auto chat = session("{{ eos_token }}{{ mood }} {{ strftime_now('%Y') }} {{ messages[0].content }}",
                      Cached<>{}, options);
  const Tokens prompt = chat.prompt("Hi");
  CHECK(prompt.front() == 0);
  CHECK(shipped().tokenizer().decode(prompt) == "merry 2024 Hi");
  CHECK(session("{{ bos_token }}{{ bos_token }}").prompt("") == Tokens{0, 0});
  auto silent = session("{% if false %}x{% endif %}");
  CHECK_THROWS_WITH_AS(silent.answer("Hi", Greedy{}),
                       "chat: the template makes an empty text of the conversation", Error);
}

TEST_CASE("ChatSession: what begins a text is written by the template alone") {
  TokenizerSpec spec = load_tokenizer_spec(kShipped);
  spec.post_processor = {{.ids = {0}}, {.is_text = true}};
  REQUIRE(Tokenizer(spec).encode("Hi").front() == 0);
  const ChatSession chat(Decoder(shipped().transformer(), Cached<>{}), Tokenizer(spec), ChatTemplate(kBare));
  CHECK(chat.prompt("Hi") == shipped().tokenizer().encode("Hi"));
}

TEST_CASE("ChatSession: the stop tokens of options, tokenizer, model and answer end an answer") {
  const Tokens tokens = session(kBare).answer("To be, or not to be", Greedy{}, {.max_new_tokens = 9}).tokens;
  const Tokens written(tokens.begin(), std::find(tokens.begin(), tokens.end(), tokens.back()));
  const TokenId last = tokens.back();
  CHECK(session(kBare, Cached<>{}, {.stop_tokens = {last}}).answer("To be, or not to be", Greedy{}).tokens ==
        written);
  CHECK(session(kBare).answer("To be, or not to be", Greedy{}, {.stop_tokens = {last}}).tokens == written);
  TokenizerSpec spec = load_tokenizer_spec(kShipped);
  spec.eos_id = last;
  ChatSession other(Decoder(shipped().transformer(), Cached<>{}), Tokenizer(spec), ChatTemplate(kBare));
  CHECK(other.answer("To be, or not to be", Greedy{}).tokens == written);
  LoadedModel loaded = load_model(kShipped);
  loaded.eos_token_ids = {last};
  const TextModel model(loaded, shipped().tokenizer(), std::string(kBare));
  ChatSession chat(Decoder(model.transformer(), Cached<>{}), model);
  const ChatAnswer answer = chat.answer("To be, or not to be", Greedy{});
  CHECK(answer.tokens == written);
  CHECK(answer.stop_reason == StopReason::kStopToken);
  CHECK(answer.is_kept);
}

TEST_CASE("ChatSession: two lines make one, as the README says") {
  const TextModel text(load_model(kShipped), shipped().tokenizer(), std::string(kScene));
  // clang-format off
  // [readme]
  kvdecode::ChatSession chat(kvdecode::Decoder(text.transformer(), kvdecode::Cached<>{}), text);
  const auto answer = chat.answer("Who wrote Hamlet?", kvdecode::Greedy{}, {.max_new_tokens = 64});
  // [readme]
  // clang-format on
  CHECK_FALSE(answer.text.empty());
  CHECK(chat.conversation() == Conversation{"", {{"user", "Who wrote Hamlet?"}, {"assistant", answer.text}}});
}

TEST_CASE("ChatSession: a model brings its template, or it is said that it has none") {
  const auto make = [](std::string source) {
    const TextModel model(load_model(kShipped), shipped().tokenizer(), std::move(source));
    return ChatSession(make_decoder(model.transformer<double>()), model);
  };
  CHECK_THROWS_WITH_AS(make(""), "chat: the model has no chat template", Error);
  CHECK_THROWS_AS(make("{% if %}"), Error);
  auto chat = make(std::string(kScene));
  check_turn<double>(chat, kQuestions[0], 20);
}
