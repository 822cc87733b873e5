// SPDX-License-Identifier: MIT
// <kvdecode/io/json.hpp> - JSON from files that may lie: bounded in size, depth and number of values, each
// key once in its object, numbers as written whatever the host's locale and rounding mode.
#pragma once

#include <kvdecode/io/mapped_file.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/core/types.hpp>

#include <nlohmann/json.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// What a JSON text may ask of its reader.
struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 25;
  std::size_t max_values = std::size_t{1} << 20;  // of any kind; one takes up to a hundred bytes of memory
  Index max_depth = 64;                           // objects and lists within one another
};

namespace detail {

/// A value as an error message shows it.
inline std::string described(const nlohmann::json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.dump();
}

/// Where a text comes from and how far it has been read.
struct JsonPosition {
  std::string source;              // the file's name
  std::size_t text_offset = 0;     // of the text in the file, in bytes
  const char* begin = nullptr;     // of the text
  const char* position = nullptr;  // the next byte to read

  std::size_t offset() const noexcept { return text_offset + static_cast<std::size_t>(position - begin); }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    raise(ErrorCode::kBadFile, source, ": at byte ", offset(), ": ", parts...);
  }
};

/// Reads a text and writes down how far it got.
class JsonIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  JsonIterator(const char* at, JsonPosition& position) noexcept : at_(at), position_(&position) {}

  reference operator*() const noexcept { return *at_; }
  JsonIterator& operator++() noexcept {
    position_->position = ++at_;
    return *this;
  }
  JsonIterator operator++(int) noexcept {
    JsonIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const JsonIterator& a, const JsonIterator& b) noexcept { return a.at_ == b.at_; }
  friend bool operator!=(const JsonIterator& a, const JsonIterator& b) noexcept { return a.at_ != b.at_; }

 private:
  const char* at_;
  JsonPosition* position_;
};

/// What all handlers of JSON events share: a place to complain about, and syntax errors.
class JsonHandler {
 public:
  using json = nlohmann::json;

  explicit JsonHandler(JsonPosition& position) : position_(position) {}

  bool binary(json::binary_t&) { position_.fail("binary data in JSON"); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view text = error.what();
    if (const std::size_t end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
    position_.fail("not JSON: ", printable(text));  // it repeats the token that it stumbled over
  }

 protected:
  JsonPosition& position_;
};

/// Runs the events of `text` through a handler, which throws if it does not like one.
template <class Handler>
void read_json_events(std::string_view text, JsonPosition& position, Handler& handler) {
  position.begin = position.position = text.data();
  // The parser takes a zero byte for the end of its input, whatever follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) [[unlikely]] {
    position.position = text.data() + zero;
    position.fail("not JSON: a zero byte");
  }
  with_default_fp_env([&] {
    if (!nlohmann::json::sax_parse(JsonIterator(text.data(), position),
                                   JsonIterator(text.data() + text.size(), position), &handler)) [[unlikely]]
      position.fail("not JSON");
  });
}

/// The number as written: the parser's own conversion follows the host's locale and rounding mode.
inline double number_of(double parsed, std::string token) {
  for (char& c : token)
    if (std::string_view("0123456789+-eE").find(c) == std::string_view::npos) c = '.';
  double value = 0.0;
  const std::from_chars_result result = std::from_chars(token.data(), token.data() + token.size(), value);
  return result.ec == std::errc{} ? value : parsed;
}

/// Builds the tree of values.
class JsonValueBuilder : public JsonHandler {
 public:
  JsonValueBuilder(JsonPosition& position, const JsonLimits& limits)
      : JsonHandler(position), limits_(limits) {}

  bool null() { return add(json()); }
  bool boolean(bool value) { return add(json(value)); }
  bool number_integer(json::number_integer_t value) { return add(json(value)); }
  bool number_unsigned(json::number_unsigned_t value) { return add(json(value)); }
  bool number_float(json::number_float_t value, const std::string& token) {
    return add(json(number_of(value, token)));
  }
  bool string(std::string& value) { return add(json(std::move(value))); }
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (open_.back()->contains(name)) [[unlikely]]
      position_.fail("the key ", in_quotes(name), " stands twice in one object");
    key_ = std::move(name);
    return true;
  }

  json take() { return std::move(root_); }

 private:
  json* place(json&& value) {
    if (++n_values_ > limits_.max_values) [[unlikely]]
      position_.fail("more than ", limits_.max_values, " values");
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool add(json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(json&& container) {
    if (static_cast<Index>(open_.size()) == limits_.max_depth) [[unlikely]]
      position_.fail("nested deeper than ", limits_.max_depth, " levels");
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  json root_;
  std::vector<json*> open_;  // containers that are being filled, outermost first; their parents do not move
  std::string key_;
  std::size_t n_values_ = 0;
};

}  // namespace detail

/// The value of a JSON text; `source` names it in errors.
/// @throws Error kBadFile: not JSON, a key twice in one object, or beyond the limits; with the offset in
/// bytes
inline nlohmann::json parse_json(std::string_view text, std::string_view source,
                                 const JsonLimits& limits = {}) {
  if (text.size() > limits.max_bytes) [[unlikely]]
    detail::raise(ErrorCode::kBadFile, source, ": ", text.size(), " bytes of JSON, more than the ",
                  limits.max_bytes, " allowed");
  detail::JsonPosition position{std::string(source), 0, nullptr, nullptr};
  detail::JsonValueBuilder builder(position, limits);
  detail::read_json_events(text, position, builder);
  return builder.take();
}

/// The value of a JSON file.
/// @throws Error kBadFile, naming the path: unreadable, or as parse_json() does
inline nlohmann::json load_json(const std::filesystem::path& path, const JsonLimits& limits = {}) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return parse_json(text, file.path(), limits);
}

}  // namespace kvdecode
