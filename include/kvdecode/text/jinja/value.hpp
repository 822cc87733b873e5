// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/value.hpp> - the values of a template, as the Python objects they stand for. Strings,
// lists and mappings never change once made, so that copies share them; a namespace is the one exception.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/meter.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// Wide enough for every 64-bit number of JSON; what does not fit is refused.
__extension__ using Integer = __int128;

struct String;
struct Sequence;
struct Dict;
struct Namespace;
struct Function;
struct Loop;
struct Macro;
struct Scope;

/// What is not there. Using it fails with `message`; printing it gives nothing.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};

using StringPtr = std::shared_ptr<const String>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;

template <class T, class Variant>
inline constexpr bool kIsAlternative = false;
template <class T, class... Types>
inline constexpr bool kIsAlternative<T, std::variant<Types...>> = (std::is_same_v<T, Types> || ...);

/// One value of a template.
class Value {
 public:
  using Variant = std::variant<None, Undefined, bool, Integer, double, StringPtr, SequencePtr, DictPtr,
                               std::shared_ptr<Namespace>, std::shared_ptr<Function>, std::shared_ptr<Loop>>;

  Value() = default;
  template <class T>
  requires(kIsAlternative<T, Variant>) explicit Value(T value)
      : variant_(std::in_place_type<T>, std::move(value)) {}

  bool is_none() const noexcept { return std::holds_alternative<None>(variant_); }
  bool is_undefined() const noexcept { return std::holds_alternative<Undefined>(variant_); }
  bool is_bool() const noexcept { return std::holds_alternative<bool>(variant_); }
  bool is_integer() const noexcept { return std::holds_alternative<Integer>(variant_); }
  bool is_float() const noexcept { return std::holds_alternative<double>(variant_); }
  bool is_number() const noexcept { return is_bool() || is_integer() || is_float(); }

  template <class T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&variant_);
  }

  inline const String* string() const noexcept;  // null for bytes
  inline const String* bytes() const noexcept;
  const Sequence* sequence() const noexcept { return pointee<SequencePtr>(); }
  const Dict* dict() const noexcept { return pointee<DictPtr>(); }
  Namespace* name_space() const noexcept { return pointee<std::shared_ptr<Namespace>>(); }
  Function* function() const noexcept { return pointee<std::shared_ptr<Function>>(); }
  Loop* loop() const noexcept { return pointee<std::shared_ptr<Loop>>(); }

  const Variant& variant() const noexcept { return variant_; }

 private:
  template <class Pointer>
  auto pointee() const noexcept -> decltype(std::declval<Pointer>().get()) {
    const Pointer* pointer = std::get_if<Pointer>(&variant_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Variant variant_;
};

/// Text, or bytes. Text is well-formed UTF-8.
struct String {
  std::string text;
  Index n_chars = 0;       // code points
  bool is_markup = false;  // HTML that must not be escaped again
  bool is_bytes = false;
  Charge charge;

  bool is_ascii() const noexcept { return n_chars == static_cast<Index>(text.size()); }
};

inline const String* Value::string() const noexcept {
  const String* found = pointee<StringPtr>();
  return found != nullptr && !found->is_bytes ? found : nullptr;
}
inline const String* Value::bytes() const noexcept {
  const String* found = pointee<StringPtr>();
  return found != nullptr && found->is_bytes ? found : nullptr;
}

/// Values in a row.
struct Sequence {
  enum class Kind { kList, kTuple, kGroup, kRange, kKeys, kValues, kItems, kGenerator, kCycler };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  Index depth = 1;
  Integer range[3] = {0, 0, 1};         // only for kRange: start, stop, step
  mutable std::size_t position = 0;     // kGenerator: what has been taken; kCycler: the current one
  std::string_view name = "generator";  // only for kGenerator
  Charge charge;

  bool is_list() const noexcept { return kind == Kind::kList; }
  bool is_tuple() const noexcept { return kind == Kind::kTuple || kind == Kind::kGroup; }
};

/// Keys with their values, in the order in which they came.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string_view, std::size_t> by_text;  // where text keys are
  Index depth = 1;
  Charge charge;
};

/// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The one value that templates can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> entries;
  Charge charge;

  Value* find(std::string_view name) noexcept {
    for (auto& [key, value] : entries) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

/// What can be called: a method of a value, a global function, a macro.
struct Function {
  enum class Kind { kMethod, kGlobal, kMacro, kJoiner };
  Kind kind = Kind::kGlobal;
  std::string name;
  Value self;                    // kMethod: the object; kJoiner: the separator
  const Macro* macro = nullptr;  // part of the template, which outlives its rendering
  std::shared_ptr<Scope> scope;  // where the macro was defined
  bool is_used = false;          // kJoiner
  Charge charge;
};

constexpr std::size_t kObjectBytes = 96;  // what a value on the heap takes beyond its content

// ---- Making values ----------------------------------------------------------------------------------------

inline Value make_undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

inline Index count_chars(std::string_view text) noexcept {
  return static_cast<Index>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  }));
}

inline Value make_string(Meter* meter, std::string text, bool is_markup = false) {
  const Index n_chars = count_chars(text);
  const std::size_t n_bytes = text.size() + kObjectBytes;
  return Value(StringPtr(new String{std::move(text), n_chars, is_markup, false, {meter, n_bytes}}));
}
inline Value make_string(Meter& meter, std::string_view text, bool is_markup = false) {
  meter.step(text.size());
  return make_string(&meter, std::string(text), is_markup);
}
inline Value make_bytes(Meter& meter, std::string_view text) {
  return Value(StringPtr(new String{std::string(text),
                                    static_cast<Index>(text.size()),
                                    false,
                                    true,
                                    {&meter, text.size() + kObjectBytes}}));
}

inline Index value_depth(const Value& value) noexcept {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const Function* function = value.function()) return 1 + value_depth(function->self);
  return 0;
}

inline Index deeper(Index depth, const Value& value) {
  const Index deep = std::max(depth, 1 + value_depth(value));
  if (deep > kMaxValueDepth) [[unlikely]] {
    kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: values nested deeper than ",
                            kMaxValueDepth);
  }
  return deep;
}

inline std::shared_ptr<Sequence> new_sequence(Meter& meter, Sequence::Kind kind, std::vector<Value> items) {
  Index depth = 1;
  for (const Value& item : items) depth = deeper(depth, item);
  std::shared_ptr<Sequence> sequence(new Sequence{
      kind, {}, depth, {0, 0, 1}, 0, "generator", {&meter, kObjectBytes + items.size() * sizeof(Value)}});
  sequence->items = std::move(items);
  return sequence;
}
inline Value make_sequence(Meter& meter, Sequence::Kind kind, std::vector<Value> items) {
  return Value(SequencePtr(new_sequence(meter, kind, std::move(items))));
}
inline Value make_list(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, Sequence::Kind::kList, std::move(items));
}
inline Value make_tuple(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, Sequence::Kind::kTuple, std::move(items));
}
inline Value make_generator(Meter& meter, std::vector<Value> items, std::string_view name = "generator") {
  auto sequence = new_sequence(meter, Sequence::Kind::kGenerator, std::move(items));
  sequence->name = name;
  return Value(SequencePtr(std::move(sequence)));
}
inline Value make_method(Meter& meter, Value self, std::string_view name) {
  deeper(1, self);
  return Value(std::shared_ptr<Function>(new Function{Function::Kind::kMethod,
                                                      std::string(name),
                                                      std::move(self),
                                                      nullptr,
                                                      nullptr,
                                                      false,
                                                      {&meter, kObjectBytes}}));
}

/// Collects the items of a list and counts them while it grows.
class ListBuilder {
 public:
  explicit ListBuilder(Meter& meter) : charge_(&meter, 0) {}
  void push(Value value) {
    charge_.add(sizeof(Value));
    items_.push_back(std::move(value));
  }
  std::vector<Value> take() { return std::move(items_); }
  const std::vector<Value>& items() const noexcept { return items_; }

 private:
  Charge charge_;
  std::vector<Value> items_;
};

/// How Python names the type of a value.
inline std::string type_name(const Value& value) {
  struct Namer {
    std::string operator()(const None&) const { return "NoneType"; }
    std::string operator()(const Undefined&) const { return "Undefined"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(const Integer&) const { return "int"; }
    std::string operator()(double) const { return "float"; }
    std::string operator()(const StringPtr& string) const {
      return string->is_bytes ? "bytes" : string->is_markup ? "Markup" : "str";
    }
    std::string operator()(const SequencePtr& sequence) const {
      switch (sequence->kind) {
        case Sequence::Kind::kList: return "list";
        case Sequence::Kind::kTuple: return "tuple";
        case Sequence::Kind::kGroup: return "_GroupTuple";
        case Sequence::Kind::kRange: return "range";
        case Sequence::Kind::kKeys: return "dict_keys";
        case Sequence::Kind::kValues: return "dict_values";
        case Sequence::Kind::kItems: return "dict_items";
        case Sequence::Kind::kGenerator: return std::string(sequence->name);
        case Sequence::Kind::kCycler: return "Cycler";
      }
      return "?";
    }
    std::string operator()(const DictPtr&) const { return "dict"; }
    std::string operator()(const std::shared_ptr<Namespace>&) const { return "Namespace"; }
    std::string operator()(const std::shared_ptr<Function>& function) const {
      switch (function->kind) {
        case Function::Kind::kMethod: return "builtin_function_or_method";
        case Function::Kind::kGlobal: return "function";
        case Function::Kind::kMacro: return "Macro";
        case Function::Kind::kJoiner: return "Joiner";
      }
      return "?";
    }
    std::string operator()(const std::shared_ptr<Loop>&) const { return "LoopContext"; }
  };
  return std::visit(Namer{}, value.variant());
}

/// The type as messages about missing members name it.
inline std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  if (value.name_space() != nullptr) return "jinja2.utils.Namespace object";
  if (value.loop() != nullptr) return "jinja2.runtime.LoopContext object";
  return type_name(value) + " object";
}

/// Fails if `value` is undefined.
inline void require_defined(const Value& value) {
  if (const Undefined* undefined = value.get_if<Undefined>()) fail(*undefined->message);
}

}  // namespace jinja
}  // namespace kvdecode
