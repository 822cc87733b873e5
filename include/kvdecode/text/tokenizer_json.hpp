// SPDX-License-Identifier: MIT
// <kvdecode/text/tokenizer_json.hpp> - tokenizer.json (Hugging Face `tokenizers`) to TokenizerSpec. Whatever
// would change an answer is taken over or refused by name; the file is not trusted.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/json_document.hpp>
#include <kvdecode/text/detail/token_index.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Takes the vocabulary and the merges past the document: they are nearly the whole file.
class TokenizerJsonBuilder : public JsonBuilder {
 public:
  using JsonBuilder::JsonBuilder;

  struct Entry {
    std::string text;
    TokenId id;
  };
  std::vector<Entry> vocabulary;
  std::vector<TokenMerge> merges;
  bool has_vocabulary = false;
  bool has_merges = false;

  bool null() { return mode_ == Mode::kDocument ? JsonBuilder::null() : wrong("null"); }
  bool boolean(bool value) {
    return mode_ == Mode::kDocument ? JsonBuilder::boolean(value) : wrong("a boolean");
  }
  bool number_float(number_float_t value, const string_t& text) {
    return mode_ == Mode::kDocument ? JsonBuilder::number_float(value, text) : wrong("a fraction");
  }
  bool number_integer(number_integer_t value) {
    if (mode_ == Mode::kDocument) return JsonBuilder::number_integer(value);
    if (mode_ != Mode::kVocabulary) return wrong("a number");
    return token(value);
  }
  bool number_unsigned(number_unsigned_t value) {
    if (mode_ == Mode::kDocument) return JsonBuilder::number_unsigned(value);
    if (mode_ != Mode::kVocabulary) return wrong("a number");
    const bool fits = value <= static_cast<number_unsigned_t>(std::numeric_limits<TokenId>::max());
    return token(fits ? static_cast<number_integer_t>(value) : -1);
  }
  bool string(string_t& value) {
    switch (mode_) {
      case Mode::kDocument: return JsonBuilder::string(value);
      case Mode::kVocabulary: return wrong("a string");
      case Mode::kMerges: {
        const std::size_t space = value.find(' ');
        if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
          fail("model.merges[" + std::to_string(merges.size()) + "]: " + in_quotes(value) +
               " is not two tokens with a space between them");
        }
        merges.push_back({value.substr(0, space), value.substr(space + 1)});
        return true;
      }
      case Mode::kMergePair:
        if (n_in_pair_ == 0)
          merges.push_back({std::move(value), {}});
        else if (n_in_pair_ == 1)
          merges.back().right = std::move(value);
        n_in_pair_ += 1;
        return true;
    }
    return true;
  }
  bool key(string_t& value) {
    if (mode_ == Mode::kVocabulary) {
      token_ = std::move(value);
      return true;
    }
    return JsonBuilder::key(value);
  }
  bool start_object(std::size_t n) {
    if (mode_ != Mode::kDocument) return wrong("an object");
    if (is_model_member("vocab")) {
      if (has_vocabulary) fail("model.vocab is there twice");
      has_vocabulary = true;
      mode_ = Mode::kVocabulary;
      return true;
    }
    if (depth() == 1) in_model_ = last_key() == "model";
    return JsonBuilder::start_object(n);
  }
  bool end_object() {
    if (mode_ == Mode::kVocabulary) {
      mode_ = Mode::kDocument;
      return true;
    }
    if (depth() == 2) in_model_ = false;
    return JsonBuilder::end_object();
  }
  bool start_array(std::size_t n) {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      n_in_pair_ = 0;
      return true;
    }
    if (mode_ != Mode::kDocument) return wrong("an array");
    if (is_model_member("merges")) {
      if (has_merges) fail("model.merges is there twice");
      has_merges = true;
      mode_ = Mode::kMerges;
      return true;
    }
    if (is_model_member("vocab")) raise(ErrorCode::kUnsupported, file(), ": model.vocab is a list (Unigram)");
    return JsonBuilder::start_array(n);
  }
  bool end_array() {
    if (mode_ == Mode::kMergePair) {
      if (n_in_pair_ != 2) {
        raise(ErrorCode::kBadFile, file(), ": model.merges: a merge of ", n_in_pair_, " tokens, expected 2");
      }
      mode_ = Mode::kMerges;
      return true;
    }
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kDocument;
      return true;
    }
    return JsonBuilder::end_array();
  }

 private:
  enum class Mode { kDocument, kVocabulary, kMerges, kMergePair };

  bool is_model_member(std::string_view name) const {
    return in_model_ && depth() == 2 && last_key() == name;
  }

  [[noreturn, gnu::cold]] bool wrong(std::string_view what) const {
    if (mode_ == Mode::kVocabulary) {
      fail("model.vocab: the id of " + in_quotes(token_) + " is " + std::string(what) +
           ", expected an integer");
    }
    fail("model.merges[" + std::to_string(merges.size()) + "]: " + std::string(what) +
         ", expected two tokens");
  }

  bool token(number_integer_t id) {
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) {
      fail("model.vocab: the id of " + in_quotes(token_) + " is no token id");
    }
    vocabulary.push_back({std::move(token_), static_cast<TokenId>(id)});
    return true;
  }

  Mode mode_ = Mode::kDocument;
  bool in_model_ = false;
  int n_in_pair_ = 0;
  std::string token_;
};

class TokenizerJsonReader {
 public:
  TokenizerSpec read(std::string_view text) {
    TokenizerJsonBuilder builder("tokenizer.json");
    read_json_events(text, "tokenizer.json", builder);
    const Json document = builder.take();
    const JsonView root(document, "tokenizer.json");
    if (!document.is_object()) root.expected("an object");
    model(root.at("model"), builder);
    vocabulary(builder);
    spec_.merges = std::move(builder.merges);
    added_tokens(root);
    if (root.has("normalizer")) normalizer(root.at("normalizer"));
    if (root.has("pre_tokenizer")) pre_tokenizer(root.at("pre_tokenizer"));
    if (root.has("post_processor")) post_processor(root.at("post_processor"));
    if (root.has("decoder")) {
      spec_.decoder.emplace();
      decoder(root.at("decoder"), *spec_.decoder);
    }
    marks();
    return std::move(spec_);
  }

  // For single components, in tests too.
  static std::vector<NormalizerStep> read_normalizer(const JsonView& view) {
    TokenizerJsonReader reader;
    reader.normalizer(view);
    return std::move(reader.spec_.normalizer);
  }
  static std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonView& view) {
    TokenizerJsonReader reader;
    reader.pre_tokenizer(view);
    return std::move(reader.spec_.pre_tokenizer);
  }
  static std::vector<DecoderStep> read_decoder(const JsonView& view) {
    std::vector<DecoderStep> steps;
    TokenizerJsonReader().decoder(view, steps);
    return steps;
  }

 private:
  static constexpr std::size_t kMaxSteps = 64;  // of a pipeline

  void model(const JsonView& view, const TokenizerJsonBuilder& builder) {
    if (!view.value().is_object()) view.expected("an object");
    const std::string type = view.string_or("type", builder.has_merges ? "BPE" : "");
    if (type != "BPE") view.unsupported(type.empty() ? "a model without type" : "model " + printable(type));
    if (view.has("vocab")) view.at("vocab").expected("an object");
    if (!builder.has_vocabulary) view.fail("has no vocab");
    if (view.has("merges")) view.at("merges").expected("an array");
    if (view.has("dropout")) {
      const JsonView dropout = view.at("dropout");
      if (!dropout.value().is_number()) dropout.expected("a number");
      if (dropout.value().get<double>() != 0) dropout.unsupported("dropout, which makes encoding random,");
    }
    if (view.has("unk_token")) spec_.unk_token = view.at("unk_token").string();
    spec_.continuing_subword_prefix = view.string_or("continuing_subword_prefix", "");
    spec_.end_of_word_suffix = view.string_or("end_of_word_suffix", "");
    spec_.fuse_unk = view.boolean_or("fuse_unk", false);
    spec_.byte_fallback = view.boolean_or("byte_fallback", false);
    spec_.ignore_merges = view.boolean_or("ignore_merges", false);
  }

  void vocabulary(TokenizerJsonBuilder& builder) {
    std::size_t size = 0;
    for (const auto& entry : builder.vocabulary) {
      size = std::max(size, static_cast<std::size_t>(entry.id) + 1);
    }
    const std::size_t max_size = 16 * builder.vocabulary.size() + 65536;
    if (size > max_size) {
      raise(ErrorCode::kBadFile, "tokenizer.json: model.vocab has ", builder.vocabulary.size(),
            " tokens, but an id of ", size - 1, ", expected less than ", max_size);
    }
    spec_.tokens.resize(size);
    spec_.token_types.assign(size, TokenType::kUnused);
    for (auto& entry : builder.vocabulary) {
      const auto i = static_cast<std::size_t>(entry.id);
      if (spec_.token_types[i] != TokenType::kUnused) {
        raise(ErrorCode::kBadFile, "tokenizer.json: model.vocab gives id ", entry.id, " to ",
              in_quotes(spec_.tokens[i]), " and to ", in_quotes(entry.text));
      }
      spec_.tokens[i] = std::move(entry.text);
      spec_.token_types[i] = TokenType::kNormal;
    }
    builder.vocabulary = {};
  }

  // The file's ids are what they were when it was written; the reference numbers the tokens anew when it
  // reads them: a content of the vocabulary keeps its id there, others follow in order. The two differ only
  // in files changed by hand.
  void added_tokens(const JsonView& root) {
    if (!root.has("added_tokens")) return;
    const JsonView list = root.at("added_tokens");
    TextIndex vocabulary(spec_.tokens.size());
    std::size_t n_tokens = 0;
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      if (spec_.token_types[i] == TokenType::kUnused) continue;
      vocabulary.insert(spec_.tokens, static_cast<TokenId>(i));
      n_tokens += 1;
    }
    auto next = static_cast<TokenId>(n_tokens);
    TextIndex seen(list.size());
    std::vector<std::string> contents;
    contents.reserve(list.size());
    std::vector<TokenId> ids_in_file;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonView view = list[i];
      AddedToken token;
      ids_in_file.push_back(token_id(view.at("id")));
      token.content = view.at("content").string();
      token.special = view.boolean_or("special", false);
      token.normalized = view.boolean_or("normalized", !token.special);
      token.lstrip = view.boolean_or("lstrip", false);
      token.rstrip = view.boolean_or("rstrip", false);
      token.single_word = view.boolean_or("single_word", false);
      if (token.content.empty()) view.fail("an added token without content");
      contents.push_back(token.content);
      if (seen.insert(contents, static_cast<TokenId>(i)) != static_cast<TokenId>(i)) continue;
      const TokenId known = vocabulary.find(spec_.tokens, token.content);
      token.id = known >= 0 ? known : next;
      next = std::max(next, token.id + 1);
      spec_.added_tokens.push_back(std::move(token));
    }
    std::sort(ids_in_file.begin(), ids_in_file.end());
    const auto twice = std::adjacent_find(ids_in_file.begin(), ids_in_file.end());
    if (twice != ids_in_file.end()) {
      raise(ErrorCode::kBadFile, list.where(), ": two tokens have the same id ", *twice);
    }
    const auto limit = static_cast<TokenId>(16 * (spec_.tokens.size() + list.size()) + 65536);
    if (!ids_in_file.empty() && ids_in_file.back() >= limit) {
      raise(ErrorCode::kBadFile, list.where(), ": id ", ids_in_file.back(), ", expected less than ", limit);
    }
  }

  static TokenId token_id(const JsonView& view) {
    return static_cast<TokenId>(view.integer(0, std::numeric_limits<TokenId>::max()));
  }

  static TextPattern pattern(const JsonView& view) {
    if (view.has("String")) return {view.at("String").string(), false};
    return {view.at("Regex").string(), true};
  }

  static std::string character(const JsonView& view) {
    const std::string& text = view.string();
    if (text.empty() || utf8_length(text.front()) != text.size()) {
      view.fail(in_quotes(text) + " is not one character");
    }
    return text;
  }

  void normalizer(const JsonView& view) {
    using Kind = NormalizerStep::Kind;
    const std::string& type = view.at("type").string();
    NormalizerStep step;
    if (type == "Sequence") {
      const JsonView list = view.at("normalizers");
      for (std::size_t i = 0; i < list.size(); ++i) normalizer(list[i]);
      return;
    }
    if (type == "NFC") {
      step.kind = Kind::kNfc;
    } else if (type == "NFD") {
      step.kind = Kind::kNfd;
    } else if (type == "NFKC") {
      step.kind = Kind::kNfkc;
    } else if (type == "NFKD") {
      step.kind = Kind::kNfkd;
    } else if (type == "Lowercase") {
      step.kind = Kind::kLowercase;
    } else if (type == "StripAccents") {
      step.kind = Kind::kStripAccents;
    } else if (type == "Nmt") {
      step.kind = Kind::kNmt;
    } else if (type == "ByteLevel") {
      step.kind = Kind::kByteLevel;
    } else if (type == "Strip") {
      step.kind = Kind::kStrip;
      step.strip_left = view.boolean_or("strip_left", true);
      step.strip_right = view.boolean_or("strip_right", true);
    } else if (type == "Prepend") {
      step.kind = Kind::kPrepend;
      step.content = view.at("prepend").string();
    } else if (type == "Replace") {
      step.kind = Kind::kReplace;
      step.pattern = pattern(view.at("pattern"));
      step.content = view.at("content").string();
    } else if (type == "BertNormalizer") {
      step.kind = Kind::kBert;
      step.clean_text = view.boolean_or("clean_text", true);
      step.handle_chinese_chars = view.boolean_or("handle_chinese_chars", true);
      step.lowercase = view.boolean_or("lowercase", true);
      step.strip_accents = view.boolean_or("strip_accents", step.lowercase);
    } else {
      view.unsupported("normalizer " + printable(type));
    }
    append(spec_.normalizer, std::move(step), view);
  }

  void pre_tokenizer(const JsonView& view) {
    using Kind = PreTokenizerStep::Kind;
    const std::string& type = view.at("type").string();
    PreTokenizerStep step;
    if (type == "Sequence") {
      const JsonView list = view.at("pretokenizers");
      for (std::size_t i = 0; i < list.size(); ++i) pre_tokenizer(list[i]);
      return;
    }
    if (type == "ByteLevel") {
      step.kind = Kind::kByteLevel;
      step.add_prefix_space = view.at("add_prefix_space").boolean();
      step.use_regex = view.boolean_or("use_regex", true);
    } else if (type == "Split") {
      step.kind = Kind::kSplit;
      step.pattern = pattern(view.at("pattern"));
      step.behavior = behavior(view.at("behavior"));
      step.invert = view.boolean_or("invert", false);
    } else if (type == "Digits") {
      step.kind = Kind::kDigits;
      step.individual_digits = view.boolean_or("individual_digits", false);
    } else if (type == "Whitespace") {
      step.kind = Kind::kWhitespace;
    } else if (type == "WhitespaceSplit") {
      step.kind = Kind::kWhitespaceSplit;
    } else if (type == "BertPreTokenizer") {
      step.kind = Kind::kBert;
    } else if (type == "Punctuation") {
      step.kind = Kind::kPunctuation;
      if (view.has("behavior")) step.behavior = behavior(view.at("behavior"));
    } else if (type == "Metaspace") {
      step.kind = Kind::kMetaspace;
      metaspace(view, step.replacement, step.prepend_scheme);
      step.split = view.boolean_or("split", true);
    } else if (type == "CharDelimiterSplit") {
      step.kind = Kind::kSplit;
      step.pattern = {character(view.at("delimiter")), false};
      step.behavior = SplitBehavior::kRemoved;
    } else if (type == "UnicodeScripts") {
      step.kind = Kind::kUnicodeScripts;
    } else if (type == "FixedLength") {
      step.kind = Kind::kFixedLength;
      step.length =
          static_cast<Index>(view.at("length").integer(1, std::numeric_limits<std::int32_t>::max()));
    } else {
      view.unsupported("pre-tokenizer " + printable(type));
    }
    append(spec_.pre_tokenizer, std::move(step), view);
  }

  static SplitBehavior behavior(const JsonView& view) {
    const std::string& name = view.string();
    if (name == "Removed") return SplitBehavior::kRemoved;
    if (name == "Isolated") return SplitBehavior::kIsolated;
    if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
    if (name == "Contiguous") return SplitBehavior::kContiguous;
    view.fail("unknown behavior " + in_quotes(name));
  }

  // Older files say add_prefix_space; where both are there they must not contradict each other.
  static void metaspace(const JsonView& view, std::string& replacement, PrependScheme& scheme) {
    replacement = character(view.at("replacement"));
    const bool adds = view.boolean_or("add_prefix_space", true);
    scheme = adds ? PrependScheme::kAlways : PrependScheme::kNever;
    if (!view.has("prepend_scheme")) return;
    const std::string& name = view.at("prepend_scheme").string();
    if (name == "always") {
      scheme = PrependScheme::kAlways;
    } else if (name == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name == "never") {
      scheme = PrependScheme::kNever;
    } else {
      view.fail("unknown prepend_scheme " + in_quotes(name));
    }
    if (!adds && scheme != PrependScheme::kNever) view.fail("add_prefix_space contradicts prepend_scheme");
  }

  void post_processor(const JsonView& view) {
    const std::string& type = view.at("type").string();
    if (type == "ByteLevel") return;  // changes offsets only
    if (type == "Sequence") {
      const JsonView list = view.at("processors");
      for (std::size_t i = 0; i < list.size(); ++i) post_processor(list[i]);
      return;
    }
    if (!spec_.post_processor.empty()) view.unsupported("a second post-processor that adds tokens");
    if (type == "RobertaProcessing" || type == "BertProcessing") {
      for (const std::string_view mark : {"cls", "", "sep"}) {
        TemplatePiece piece;
        piece.is_text = mark.empty();
        if (!mark.empty()) piece.ids.push_back(token_id(view.at(mark)[1]));
        spec_.post_processor.push_back(std::move(piece));
      }
    } else if (type == "TemplateProcessing") {
      template_processing(view);
    } else {
      view.unsupported("post-processor " + printable(type));
    }
  }

  void template_processing(const JsonView& view) {
    const JsonView pieces = view.at("single");
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const JsonView piece = pieces[i];
      TemplatePiece result;
      if (piece.has("Sequence")) {
        if (piece.at("Sequence").at("id").string() != "A") {
          piece.unsupported("a template for one text with a second one");
        }
        result.is_text = true;
      } else {
        const std::string& name = piece.at("SpecialToken").at("id").string();
        const JsonView ids = view.at("special_tokens").at(name).at("ids");
        if (ids.size() > kMaxSteps) ids.unsupported("a special token of more than 64 ids");
        for (std::size_t k = 0; k < ids.size(); ++k) result.ids.push_back(token_id(ids[k]));
      }
      append(spec_.post_processor, std::move(result), piece);
    }
  }

  static void decoder(const JsonView& view, std::vector<DecoderStep>& steps) {
    using Kind = DecoderStep::Kind;
    const std::string& type = view.at("type").string();
    DecoderStep step;
    if (type == "Sequence") {
      const JsonView list = view.at("decoders");
      for (std::size_t i = 0; i < list.size(); ++i) decoder(list[i], steps);
      return;
    }
    if (type == "ByteLevel") {
      step.kind = Kind::kByteLevel;
    } else if (type == "Metaspace") {
      step.kind = Kind::kMetaspace;
      metaspace(view, step.replacement, step.prepend_scheme);
    } else if (type == "ByteFallback") {
      step.kind = Kind::kByteFallback;
    } else if (type == "Fuse") {
      step.kind = Kind::kFuse;
    } else if (type == "Strip") {
      step.kind = Kind::kStrip;
      step.content = character(view.at("content"));
      step.start = static_cast<Index>(view.at("start").integer(0, std::numeric_limits<std::int32_t>::max()));
      step.stop = static_cast<Index>(view.at("stop").integer(0, std::numeric_limits<std::int32_t>::max()));
    } else if (type == "Replace") {
      step.kind = Kind::kReplace;
      step.pattern = pattern(view.at("pattern"));
      step.content = view.at("content").string();
    } else if (type == "BPEDecoder") {
      step.kind = Kind::kBpe;
      step.content = view.string_or("suffix", "</w>");
    } else if (type == "CTC") {
      step.kind = Kind::kCtc;
      step.content = view.string_or("pad_token", "<pad>");
      step.word_delimiter = view.string_or("word_delimiter_token", "|");
      step.cleanup = view.boolean_or("cleanup", true);
    } else if (type == "WordPiece") {
      step.kind = Kind::kWordPiece;
      step.content = view.string_or("prefix", "##");
      step.cleanup = view.boolean_or("cleanup", true);
    } else {
      view.unsupported("decoder " + printable(type));
    }
    append(steps, std::move(step), view);
  }

  template <std::movable Step>
  static void append(std::vector<Step>& steps, Step step, const JsonView& view) {
    if (steps.size() == kMaxSteps) {
      view.unsupported("a pipeline of more than " + std::to_string(kMaxSteps) + " steps");
    }
    steps.push_back(std::move(step));
  }

  // The file does not say which tokens start and end a text; the post-processor shows it.
  void marks() {
    const auto& pieces = spec_.post_processor;
    if (pieces.empty()) return;
    if (!pieces.front().is_text && !pieces.front().ids.empty()) spec_.bos_id = pieces.front().ids.front();
    if (!pieces.back().is_text && !pieces.back().ids.empty()) spec_.eos_id = pieces.back().ids.back();
  }

  TokenizerSpec spec_;
};

}  // namespace detail

/// Reads the text of a tokenizer.json.
///
/// bos_id and eos_id are what the post-processor puts first and last, if it does; see apply_tokenizer_config.
/// The sections `truncation` and `padding` are left out, as transformers does unless asked: a prompt is never
/// cut or padded in silence.
/// @throws Error kBadFile for what contradicts the format or itself, kUnsupported for kinds that are not
///          served: models other than BPE, the normalizer Precompiled, BPE dropout, regular expressions
///          without equivalent.
inline TokenizerSpec read_tokenizer_json(std::string_view text) {
  return detail::TokenizerJsonReader().read(text);
}

/// Sets bos_id and eos_id from the text of a tokenizer_config.json, where they are named by `bos_token`,
/// `eos_token`.
inline void apply_tokenizer_config(TokenizerSpec& spec, std::string_view text) {
  const detail::Json document = detail::parse_json(text, "tokenizer_config.json");
  const detail::JsonView root(document, "tokenizer_config.json");
  const auto find = [&](std::string_view key, std::optional<TokenId>& id) {
    if (!root.has(key)) return;
    const detail::JsonView view = root.at(key);
    const std::string& name = view.value().is_string() ? view.string() : view.at("content").string();
    for (const AddedToken& token : spec.added_tokens) {
      if (token.content == name) id = token.id;
      if (token.content == name) return;
    }
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.tokens[i] != name ||
          (!spec.token_types.empty() && spec.token_types[i] == TokenType::kUnused)) {
        continue;
      }
      id = static_cast<TokenId>(i);
      return;
    }
    view.fail(detail::in_quotes(name) + " is not a token");
  };
  find("bos_token", spec.bos_id);
  find("eos_token", spec.eos_id);
}

}  // namespace kvdecode
