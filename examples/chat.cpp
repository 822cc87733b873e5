// SPDX-License-Identifier: MIT
// How does one talk with a model? Answers go to standard output, everything else to standard error (on a
// terminal: to the screen). Each turn runs only what is new of the conversation through the model.
//
// Run: build/examples/chat MODEL [--system TEXT] [--template FILE] [--max-new-tokens N]
//          [--temperature X --top-k K --top-p P --seed S] [--threads N] [--scalar f32|f64]
//          [--activations exact|int8] [--cache-format native|f16|int8|int8/had_int4|…]
//          [--strategy cached|recompute] [--max-seq-len N]
// Exit status 0 when it is left (/quit, the input's end, Ctrl-C at the prompt).
#include "program.hpp"
#include "progress_line.hpp"

#include <kvdecode/pipeline.hpp>

#include <sys/select.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>  // and POSIX's sigaction
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace {

using kvdecode::Index;
using kvdecode::TokenId;

struct Arguments {
  std::string model;
  std::string system;
  std::string template_path;
  std::string strategy = "cached";
  std::string scalar = "f32";
  std::string activations = "exact";
  std::string cache_format = "native";
  Index max_new_tokens = 1024;
  Index max_seq_len = 0;
  Index n_threads = 1;
  kvdecode::SamplingOptions sampling{.temperature = 0.7, .top_k = 40, .top_p = 0.95};
};

constexpr std::string_view kHelp =
    "/help          this list\n"
    "/regenerate    answers the last question anew\n"
    "/undo          takes back the last question and its answer\n"
    "/clear         takes back all of them\n"
    "/system TEXT   tells the model TEXT before all else; without TEXT: nothing\n"
    "/save FILE     writes the conversation as JSON\n"
    "/load FILE     goes on with a conversation that was saved\n"
    "/stats         shows figures: tokens per second, positions, memory\n"
    "/quit          leaves, as Ctrl-D does\n"
    "//TEXT         sends a message that begins with /\n"
    "A line that ends with \\ goes on in the next one. Ctrl-C stops an answer, and what was written stays.";

// ---- Ctrl-C ------------------------------------------------------------------------------------------------

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_interrupt(int) { interrupted = 1; }

/// Blocks SIGINT in this thread, and in those that it starts, while it lives.
class InterruptsBlocked {
 public:
  InterruptsBlocked() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  }
  InterruptsBlocked(const InterruptsBlocked&) = delete;
  InterruptsBlocked& operator=(const InterruptsBlocked&) = delete;
  ~InterruptsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

/// Writing goes on after Ctrl-C: a terminal that is slow to take an answer is no output that failed. What waits for
/// a line, pselect(), returns all the same.
void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

// ---- Lines in, lines out -----------------------------------------------------------------------------------

/// Standard input by lines. std::cin would not notice Ctrl-C while it waits.
class Input {
 public:
  enum class Event { kLine, kTooLong, kEnd, kInterrupt };
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // of a line: 1 MiB

  Event next(std::string& line) {
    line.clear();
    bool is_too_long = false;
    while (true) {
      const std::size_t end = buffer_.find('\n', n_searched_);
      if (end != std::string::npos || (at_end_ && !buffer_.empty())) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end == std::string::npos ? end : end + 1);
        n_searched_ = 0;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return is_too_long ? Event::kTooLong : Event::kLine;
      }
      n_searched_ = buffer_.size();
      if (n_searched_ > kMaxBytes) {
        is_too_long = true;
        buffer_.erase(0, kMaxBytes);
        n_searched_ = buffer_.size();
      }
      if (at_end_) return Event::kEnd;
      if (!wait()) {
        buffer_.clear();
        n_searched_ = 0;
        return Event::kInterrupt;
      }
      char bytes[4096];
      const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (n > 0)
        buffer_.append(bytes, static_cast<std::size_t>(n));
      else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        at_end_ = true;
    }
  }

 private:
  /// Until there is something to read; false: Ctrl-C came first. It can come only within pselect, so that none
  /// is missed in front of it.
  static bool wait() {
    const InterruptsBlocked blocked;
    while (interrupted == 0) {
      fd_set readable;
      FD_ZERO(&readable);
      FD_SET(STDIN_FILENO, &readable);
      if (pselect(STDIN_FILENO + 1, &readable, nullptr, nullptr, nullptr, &blocked.before()) >= 0)
        return true;
      if (errno != EINTR) return true;  // read() says what is wrong
    }
    interrupted = 0;
    return false;
  }

  std::string buffer_;
  std::size_t n_searched_ = 0;  // bytes of buffer_ without a line's end
  bool at_end_ = false;
};

/// Without what would steer a terminal: models and their templates are written by strangers.
std::string harmless(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0)
      ++i;  // U+0080 to U+009F
    else if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7F))
      shown += text[i];
  }
  return shown;
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// Where answers go, and what the program itself has to say: that is dim on a terminal.
class Screen {
 public:
  Screen() {
    const bool is_terminal = isatty(&out_ == &std::cout ? STDOUT_FILENO : STDERR_FILENO) != 0;
    if (!is_interactive_ || !is_terminal || is_set("NO_COLOR") || !is_set("TERM") ||
        std::string_view(std::getenv("TERM")) == "dumb")
      return;
    dim_ = "\033[2m";
    normal_ = "\033[0m";
  }

  /// Whether somebody types.
  bool is_interactive() const { return is_interactive_; }
  void prompt(std::string_view text) {
    if (is_interactive_) out_ << text << std::flush;
  }
  void say(std::string_view text) { out_ << dim_ << harmless(text) << normal_ << '\n' << std::flush; }
  void answer(std::string_view piece) {
    if (answers_on_terminal_)
      std::cout << harmless(piece) << std::flush;
    else
      std::cout << piece << std::flush;
  }

 private:
  bool is_interactive_ = isatty(STDIN_FILENO) != 0;
  bool answers_on_terminal_ = isatty(STDOUT_FILENO) != 0;
  std::ostream& out_ = is_interactive_ && answers_on_terminal_ ? std::cout : std::cerr;
  const char* dim_ = "";
  const char* normal_ = "";
};

// ---- The conversation --------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// What went wrong, without the word that says who noticed.
std::string_view plain(const kvdecode::Error& error) {
  std::string_view text = error.what();
  if (text.starts_with("chat: ")) text.remove_prefix(6);
  return text;
}

/// "1 exchange", "3 exchanges"
std::string exchanges(const kvdecode::Conversation& conversation) {
  const std::size_t n = conversation.messages.size() / 2;
  return std::to_string(n) + (n == 1 ? " exchange" : " exchanges");
}

template <class S>
class Chat {
 public:
  using Session = kvdecode::ChatSession<kvdecode::AnyDecoder<S>>;

  Chat(const Arguments& arguments, const kvdecode::TextModel& model, kvdecode::ExecutorRef exec)
      : arguments_(arguments), sampling_(arguments.sampling), session_(make_session(model, exec)) {
    try {  // also with an empty text: a template that refuses every question is of no use
      session_.set_system(arguments.system);
    } catch (const kvdecode::Error& error) {
      throw kvdecode::Error(error.code(),
                            (arguments.system.empty() ? "" : "--system: ") + std::string(plain(error)));
    }
  }

  void run() {
    screen_hint();
    std::string message, line;
    bool is_leaving = false;  // Ctrl-C came at the prompt
    while (true) {
      screen_.prompt(message.empty() ? "> " : "  ");
      const Input::Event event = input_.next(line);
      if (event == Input::Event::kInterrupt) {
        message.clear();
        screen_.prompt("\n");
        if (is_leaving || !screen_.is_interactive()) return;
        is_leaving = true;
        screen_.say("(Ctrl-C again, or Ctrl-D, leaves)");
        continue;
      }
      is_leaving = false;
      if (event == Input::Event::kTooLong) {
        message.clear();
        screen_.say("a line of more than 1 MiB is not sent");
        continue;
      }
      if (event == Input::Event::kEnd && message.empty()) {
        screen_.prompt("\n");
        return;
      }
      if (line.ends_with('\\')) {
        message += line.substr(0, line.size() - 1) + "\n";
        continue;
      }
      message += line;
      if (!attempt(std::exchange(message, {}))) return;
      if (!std::cout) throw std::runtime_error("standard output cannot be written");
    }
  }

 private:
  Session make_session(const kvdecode::TextModel& model, kvdecode::ExecutorRef exec) {
    kvdecode::DecodeOptions decoding;
    decoding.max_seq_len = arguments_.max_seq_len;
    decoding.prefill_chunk = 128;  // Ctrl-C waits for the end of a pass
    if (arguments_.strategy == "recompute") decoding.strategy = kvdecode::DecodeOptions::Strategy::kRecompute;
    decoding.cache_format = program::cache_format(arguments_.cache_format);
    auto decoder = program::with_activations(arguments_.activations, [&]<class Activations>() {
      return kvdecode::make_decoder(model.template transformer<S, Activations>(), decoding, exec);
    });

    kvdecode::ChatOptions options;
    options.stop_tokens = model.stop_tokens();
    options.clock = [] {
      const std::time_t now = std::time(nullptr);
      std::tm local{};
      localtime_r(&now, &local);
      return local;
    };
    if (!arguments_.template_path.empty()) {
      const kvdecode::MappedFile file(arguments_.template_path);
      const std::string_view source(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
      try {
        return Session(std::move(decoder), model.tokenizer(), kvdecode::ChatTemplate(source),
                       std::move(options));
      } catch (const kvdecode::Error& error) {
        throw kvdecode::Error(error.code(), arguments_.template_path + ": " + error.what());
      }
    }
    if (model.chat_template().empty())
      throw kvdecode::Error(kvdecode::ErrorCode::kUnsupported,
                            arguments_.model + ": has no chat template; --template FILE gives it one");
    return Session(std::move(decoder), model, std::move(options));
  }

  void screen_hint() {
    if (!screen_.is_interactive()) return;
    screen_.say(std::filesystem::path(arguments_.model).filename().string() + ", " +
                program::count(session_.decoder().max_seq_len()) +
                " positions. /help lists the commands, Ctrl-D leaves.");
  }

  /// Does what the message says; false: leave. What fails is said in a line, and the conversation goes on.
  bool attempt(const std::string& message) {
    try {
      return handle(message);
    } catch (const kvdecode::Error& error) {
      screen_.say(plain(error));
    } catch (const std::bad_alloc&) {
      screen_.say("not enough memory for that; /clear makes room");
    } catch (const std::exception& error) {
      screen_.say(error.what());
    }
    return true;
  }

  bool handle(const std::string& message) {
    if (message.starts_with("//")) {
      ask(message.substr(1));
      return true;
    }
    if (!message.starts_with('/')) {
      if (message.find_first_not_of(" \t\n") != std::string::npos) ask(message);
      return true;
    }
    const std::size_t end = message.find_first_of(" \t\n");
    const std::string_view name = std::string_view(message).substr(0, end);
    const std::string rest(end == std::string::npos ? std::string_view() : trimmed(message.substr(end)));
    if (name == "/quit") return false;
    if (name == "/help") {
      screen_.say(kHelp);
    } else if (name == "/clear") {
      session_.clear();
      screen_.say("the conversation is empty");
    } else if (name == "/undo") {
      screen_.say(session_.undo() ? exchanges(session_.conversation()) + " left"
                                  : "nothing has been asked yet");
    } else if (name == "/regenerate") {
      write_answer([&](auto& sampler, const auto& options, auto& on_text) {
        return session_.regenerate(sampler, options, on_text);
      });
    } else if (name == "/system") {
      session_.set_system(rest);
      screen_.say(rest.empty() ? "the system text is empty" : "the system text is set");
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/load") {
      if (rest.empty()) throw std::runtime_error("/load needs a FILE");
      session_.set_conversation(kvdecode::load_conversation(rest));
      screen_.say(exchanges(session_.conversation()) + " from " + rest);
    } else if (name == "/stats") {
      show_statistics();
    } else {
      screen_.say("there is no command " + std::string(name) + "; /help lists them");
    }
    return true;
  }

  void ask(const std::string& question) {
    write_answer([&](auto& sampler, const auto& options, auto& on_text) {
      return session_.answer(question, sampler, options, on_text);
    });
  }

  template <class Ask>
  void write_answer(Ask&& ask_session) {
    bool ends_line = true;
    const auto end_line = [&] {
      if (!ends_line) std::cout << std::endl;
      ends_line = true;
    };
    const auto on_text = [&](std::string_view piece) {
      screen_.answer(piece);
      ends_line = piece.back() == '\n';
      return interrupted == 0 && std::cout.good();
    };
    std::stop_source stop;  // for tokens without text, of which on_text hears nothing
    const auto sampler = [&](std::span<const S> logits) -> TokenId {
      if (interrupted != 0) stop.request_stop();
      return sampling_(logits);
    };
    kvdecode::GenerateOptions options;
    options.max_new_tokens = arguments_.max_new_tokens;
    options.stop = stop.get_token();
    try {
      program::ProgressLine reading("reading", stderr, screen_.is_interactive() && isatty(STDERR_FILENO) != 0,
                                    0.4);
      const auto on_prompt = [&](Index n_done, Index n_prompt) {
        reading(n_done, n_prompt);
        return interrupted == 0;
      };
      options.on_prompt = on_prompt;
      last_ = ask_session(sampler, options, on_text);
    } catch (const kvdecode::Error& error) {
      end_line();
      if (error.code() != kvdecode::ErrorCode::kCacheFull) throw;
      screen_.say("the context is full: " + std::string(plain(error)) + "; " + ways_to_make_room());
      return;
    } catch (...) {
      end_line();
      throw;
    }
    interrupted = 0;
    end_line();
    explain_end();
    screen_.prompt("\n");
  }

  void explain_end() {
    switch (last_.stop_reason) {
      case kvdecode::StopReason::kMaxNewTokens:
        screen_.say("(cut after " + program::count(last_.statistics.n_new_tokens) +
                    " tokens; --max-new-tokens allows more)");
        break;
      case kvdecode::StopReason::kContextFull:
        screen_.say("(cut: all " + program::count(session_.decoder().max_seq_len()) +
                    " positions are used; " + ways_to_make_room() + ")");
        break;
      case kvdecode::StopReason::kCallback:
      case kvdecode::StopReason::kCancelled:
        if (std::cout) screen_.say(last_.is_kept ? "(stopped)" : "(stopped before the first word; not kept)");
        break;
      case kvdecode::StopReason::kStopToken:
      case kvdecode::StopReason::kStopString:
        if (last_.text.empty()) screen_.say("(an empty answer)");
        break;
    }
  }

  std::string ways_to_make_room() const {
    return session_.conversation().messages.empty()
               ? "ask in fewer words, or make room with --max-seq-len"
               : "/undo takes back the last exchange, /clear all of them";
  }

  /// Replaces a conversation, and no other file.
  void save(const std::string& path) {
    if (path.empty()) throw std::runtime_error("/save needs a FILE");
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error) && std::filesystem::file_size(path, error) > 0) {
      try {
        kvdecode::load_conversation(path);
      } catch (const kvdecode::Error&) {
        throw std::runtime_error(path + ": is there and is no conversation; it stays as it is");
      }
    }
    kvdecode::save_conversation(session_.conversation(), path);
    screen_.say(exchanges(session_.conversation()) + " in " + path);
  }

  void show_statistics() {
    const kvdecode::GenerateStatistics& s = last_.statistics;
    std::string text;
    if (s.n_prompt_tokens > 0)
      text = "last answer: " + program::count(s.n_new_tokens) + " tokens, " +
             program::rate(s.tokens_per_second) + " tokens/s, the first after " +
             program::seconds(s.time_to_first_token) + "\nits prompt: " + program::count(s.n_prompt_tokens) +
             " tokens, " + program::count(last_.n_reused_tokens) + " of them in the cache already\n";
    const kvdecode::DecoderStatistics decoder = session_.decoder().statistics();
    text += "positions: " + program::count(session_.decoder().kv_len()) + " of " +
            program::count(session_.decoder().max_seq_len()) + " used; cache " +
            program::bytes(decoder.cache_bytes) + ", scratch " + program::bytes(decoder.scratch_bytes);
    screen_.say(text);
  }

  const Arguments& arguments_;
  Screen screen_;
  Input input_;
  kvdecode::Sampling<> sampling_;
  Session session_;
  kvdecode::ChatAnswer last_;
};

template <class S>
int talk(const Arguments& arguments) {
  const kvdecode::TextModel model = kvdecode::load_text_model(arguments.model);
  if (isatty(STDIN_FILENO) != 0) program::read_ahead(model.report());
  std::optional<kvdecode::ThreadTeam> team;
  {
    const InterruptsBlocked in_its_threads;
    team.emplace(arguments.n_threads);
  }
  Chat<S> chat(arguments, model, *team);
  catch_interrupts();
  chat.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Talks with a model: what you type is answered, and the conversation is kept in mind.",
               "chat"};
  Arguments a;
  app.add_option("MODEL", a.model, "a Hugging Face folder or a GGUF file")->required();
  app.add_option("--system", a.system, "what the model is told before all else");
  app.add_option("--template", a.template_path,
                 "a file with the chat template (Jinja) to use in the place of the model's own");
  app.add_option("--max-new-tokens", a.max_new_tokens, "tokens of an answer at most")
      ->check(program::count_from(1))
      ->capture_default_str();
  program::add_sampling_options(app, a.sampling);
  program::add_threads_option(app, a.n_threads);
  app.add_option("--scalar", a.scalar, "the number type to compute in")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app.add_option("--strategy", a.strategy, "how to decode")
      ->check(CLI::IsMember({"cached", "recompute"}))
      ->capture_default_str();
  app.add_option("--max-seq-len", a.max_seq_len, "positions of the conversation at most; 0: the model's")
      ->check(program::count_from(0))
      ->capture_default_str();
  program::add_activations_option(app, a.activations);
  program::add_cache_format_option(app, a.cache_format);
  return program::run(app, argc, argv, [&] { return a.scalar == "f64" ? talk<double>(a) : talk<float>(a); });
}
