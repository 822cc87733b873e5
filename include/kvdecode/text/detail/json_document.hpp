// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/json_document.hpp> - JSON from files that are not trusted: parsed with a limit on
// depth and on the number of values, read with a check of every type. All failures are Errors that say where.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>

#include <nlohmann/json.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

using Json = nlohmann::json;

/// A SAX handler that builds a document. Derive from it to take parts of the document elsewhere: `path` tells
/// where.
class JsonBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  static constexpr std::size_t kMaxDepth = 64;
  static constexpr std::size_t kMaxValues = std::size_t{1} << 20;  // at most some 100 bytes each

  explicit JsonBuilder(std::string_view file) : file_(file) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(value); }
  bool number_unsigned(number_unsigned_t value) { return put(value); }
  bool number_float(number_float_t value, const string_t&) { return put(value); }
  bool string(string_t& value) { return put(std::move(value)); }
  bool binary(binary_t&) { fail("a binary value"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool key(string_t& value) {
    key_ = std::move(value);
    if (stack_.back()->contains(key_)) fail("the key " + in_quotes(key_) + " twice in one object");
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view text = error.what();
    const std::size_t start = text.find("] ");
    if (start != std::string_view::npos) text.remove_prefix(start + 2);
    raise(ErrorCode::kBadFile, file_, ": not valid JSON at byte ", position, ": ", printable(text));
  }

  Json take() { return std::move(root_); }

 protected:
  [[noreturn, gnu::cold]] void fail(std::string_view what) const {
    raise(ErrorCode::kBadFile, file_, ": ", what);
  }

  std::string_view file() const noexcept { return file_; }

  /// Containers that are open in the document.
  std::size_t depth() const noexcept { return stack_.size(); }
  const std::string& last_key() const noexcept { return key_; }

 private:
  Json* place(Json value) {
    if (++n_values_ > kMaxValues) {
      raise(ErrorCode::kBadFile, file_, ": more than ", kMaxValues, " values beside the vocabulary");
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= kMaxDepth) {
      raise(ErrorCode::kBadFile, file_, ": nested deeper than ", kMaxDepth, " levels");
    }
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string file_;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
  std::size_t n_values_ = 0;
};

/// Runs the events of `text`, which errors call `file`, through a builder.
template <std::derived_from<JsonBuilder> Builder>
void read_json_events(std::string_view text, std::string_view file, Builder& builder) {
  // The parser takes a zero byte for the end of its input, whatever follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    raise(ErrorCode::kBadFile, file, ": not valid JSON at byte ", zero, ": a zero byte");
  }
  Json::sax_parse(text.begin(), text.end(), &builder);
}

/// Parses `text`, which errors call `file`.
inline Json parse_json(std::string_view text, std::string_view file) {
  JsonBuilder builder(file);
  read_json_events(text, file, builder);
  return builder.take();
}

/// A value of a document and its place, for messages: "tokenizer.json: decoder.decoders[2].type".
class JsonView {
 public:
  JsonView(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json& value() const noexcept { return *value_; }
  const std::string& where() const noexcept { return where_; }

  [[noreturn, gnu::cold]] void fail(std::string_view what) const {
    raise(ErrorCode::kBadFile, where_, ": ", what);
  }
  [[noreturn, gnu::cold]] void expected(std::string_view what) const {
    raise(ErrorCode::kBadFile, where_, ": expected ", what, ", got ", value_->type_name());
  }
  [[noreturn, gnu::cold]] void unsupported(std::string_view what) const {
    raise(ErrorCode::kUnsupported, where_, ": ", what, " is not supported");
  }

  bool is_null() const noexcept { return value_->is_null(); }

  /// True if there is a member `key` that is not null.
  bool has(std::string_view key) const {
    if (!value_->is_object()) expected("an object");
    const auto member = value_->find(key);
    return member != value_->end() && !member->is_null();
  }
  JsonView at(std::string_view key) const {
    if (!value_->is_object()) expected("an object");
    const auto member = value_->find(key);
    if (member == value_->end()) raise(ErrorCode::kBadFile, where_, ": has no ", in_quotes(key));
    return JsonView(*member, where_ + "." + printable(key));
  }

  std::size_t size() const {
    if (!value_->is_array()) expected("an array");
    return value_->size();
  }
  JsonView operator[](std::size_t i) const {
    if (i >= size()) {
      raise(ErrorCode::kBadFile, where_, ": has ", size(), " elements, expected at least ", i + 1);
    }
    return JsonView((*value_)[i], where_ + "[" + std::to_string(i) + "]");
  }

  const std::string& string() const {
    if (!value_->is_string()) expected("a string");
    return value_->get_ref<const std::string&>();
  }
  bool boolean() const {
    if (!value_->is_boolean()) expected("true or false");
    return value_->get<bool>();
  }
  /// An integer in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) const {
    if (!value_->is_number_integer()) expected("an integer");
    const bool too_large =
        value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
    const std::int64_t value = too_large ? INT64_MAX : value_->get<std::int64_t>();
    if (value < low || value > high) {
      raise(ErrorCode::kBadFile, where_, ": ", value, " is not in ", low, " to ", high);
    }
    return value;
  }

  std::string string_or(std::string_view key, std::string_view fallback) const {
    return has(key) ? at(key).string() : std::string(fallback);
  }
  bool boolean_or(std::string_view key, bool fallback) const {
    return has(key) ? at(key).boolean() : fallback;
  }

 private:
  const Json* value_;
  std::string where_;
};

}  // namespace detail
}  // namespace kvdecode
