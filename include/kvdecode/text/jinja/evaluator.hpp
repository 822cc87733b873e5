// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/evaluator.hpp> - one rendering: walks the tree, keeps the names, writes the text.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/access.hpp>
#include <kvdecode/text/jinja/arguments.hpp>
#include <kvdecode/text/jinja/calendar.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/filters.hpp>
#include <kvdecode/text/jinja/formatting.hpp>
#include <kvdecode/text/jinja/loop.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/methods.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/predicates.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/syntax.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// Names with their values, inside of others.
struct Scope {
  std::unordered_map<std::string, Value> names;
  std::shared_ptr<Scope> parent;
  Index depth = 0;
  Charge charge;
};
using ScopePtr = std::shared_ptr<Scope>;

/// Renders one template once.
class Evaluator {
 public:
  using Clock = std::function<std::tm()>;

  Evaluator(Meter& meter, const Clock& clock) : meter_(meter), clock_(clock), globals_(new_scope(nullptr)) {
    for (const std::string_view name :
         {"range", "dict", "namespace", "cycler", "joiner", "lipsum", "raise_exception", "self"}) {
      set(*globals_, std::string(name), make_function(Function::Kind::kGlobal, name));
    }
    if (clock_) set(*globals_, "strftime_now", make_function(Function::Kind::kGlobal, "strftime_now"));
  }
  ~Evaluator() {
    // Scopes with macros and namespaces may refer to one another in circles.
    for (const ScopePtr& scope : kept_scopes_) {
      scope->names.clear();
      scope->parent.reset();
    }
    for (const auto& name_space : kept_namespaces_) name_space->entries.clear();
  }
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void define(const std::string& name, Value value) { set(*globals_, name, std::move(value)); }

  std::string render(const Body& body) {
    TextBuilder out(meter_);
    run(body, new_scope(globals_), out);
    return out.take();
  }

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // ---- Names ----

  ScopePtr new_scope(ScopePtr parent) {
    const Index depth = parent ? parent->depth + 1 : 0;
    if (depth > 1000)
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: scopes nested deeper than 1000");
    return ScopePtr(new Scope{{}, std::move(parent), depth, {&meter_, sizeof(Scope)}});
  }

  void set(Scope& scope, const std::string& name, Value value) {
    const auto [place, is_new] = scope.names.insert_or_assign(name, std::move(value));
    if (is_new) scope.charge.add(sizeof(*place) + name.size());
  }

  Value look_up(const Scope& scope, const std::string& name) {
    for (const Scope* s = &scope; s != nullptr; s = s->parent.get()) {
      meter_.step();
      const auto found = s->names.find(name);
      if (found != s->names.end()) return found->second;
    }
    return make_undefined("'" + name + "' is undefined");
  }

  void assign(const ScopePtr& scope, const Target& target, const Value& value) {
    if (target.is_tuple) return unpack(scope, target, value);
    if (target.attribute.empty()) return set(*scope, target.name, value);
    Namespace* name_space = look_up(*scope, target.name).name_space();  // kept alive by kept_namespaces_
    if (name_space == nullptr) fail("cannot assign attribute on non-namespace object");
    set_member(*name_space, target.attribute, value);
  }

  void unpack(const ScopePtr& scope, const Target& target, const Value& value) {
    const Level level(meter_);
    const bool can_iterate = value.is_undefined() || value.string() != nullptr ||
                             value.sequence() != nullptr || value.dict() != nullptr;
    if (!can_iterate) fail("cannot unpack non-iterable ", type_name(value), " object");
    const std::vector<Value> parts = iterate(meter_, value);
    const std::size_t expected = target.elements.size();
    if (parts.size() < expected)
      fail("not enough values to unpack (expected ", expected, ", got ", parts.size(), ")");
    if (parts.size() > expected) fail("too many values to unpack (expected ", expected, ")");
    for (std::size_t i = 0; i < expected; ++i) assign(scope, target.elements[i], parts[i]);
  }

  void set_member(Namespace& name_space, const std::string& name, Value value) {
    if (name.starts_with('_')) {
      fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '", name,
           "'. Please rename the attribute.");
    }
    meter_.step(name_space.entries.size() * 64);
    if (Value* old = name_space.find(name)) {
      Value kept = std::exchange(*old, std::move(value));  // may own what is being replaced
      return;
    }
    name_space.charge.add(sizeof(Value) + 32 + name.size());
    name_space.entries.emplace_back(name, std::move(value));
  }

  // ---- Statements ----

  Flow run(const Body& body, const ScopePtr& scope, TextBuilder& out) {
    const Level level(meter_);
    for (const Statement& statement : body) {
      const Flow flow = run(statement, scope, out);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow run(const Statement& statement, const ScopePtr& scope, TextBuilder& out) {
    using Kind = Statement::Kind;
    meter_.step();
    switch (statement.kind) {
      case Kind::kText: out.append(statement.text); return Flow::kNormal;
      case Kind::kPrint:
        for (const ExpressionPtr& expression : statement.expressions)
          print(out, evaluate(*expression, scope));
        return Flow::kNormal;
      case Kind::kIf: return run_if(statement, scope, out);
      case Kind::kFor: {
        const Value items = evaluate(*statement.expressions[0], scope);
        return run_for(statement, items, scope, 1, out);
      }
      case Kind::kSet:
        assign(scope, statement.targets[0], evaluate(*statement.expressions[0], scope));
        return Flow::kNormal;
      case Kind::kSetBlock: return run_captured(statement, scope, nullptr);
      case Kind::kFilterBlock: return run_captured(statement, scope, &out);
      case Kind::kMacro: define_macro(statement, scope); return Flow::kNormal;
      case Kind::kCallBlock: run_call(statement, scope, out); return Flow::kNormal;
      case Kind::kWith: return run_with(statement, scope, out);
      case Kind::kScope: return run(statement.bodies[0], new_scope(scope), out);
      case Kind::kAutoescape: return run_autoescape(statement, scope, out);
      case Kind::kBreak: return Flow::kBreak;
      case Kind::kContinue: return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  void print(TextBuilder& out, const Value& value) {
    if (!autoescapes_ || (value.string() != nullptr && value.string()->is_markup))
      return append_str(out, value);
    TextBuilder text(meter_);
    append_str(text, value);
    append_html_escaped(out, text.text());
  }

  Flow run_if(const Statement& statement, const ScopePtr& scope, TextBuilder& out) {
    for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
      if (is_true(evaluate(*statement.expressions[i], scope))) return run(statement.bodies[i], scope, out);
    }
    if (statement.bodies.size() > statement.expressions.size())
      return run(statement.bodies.back(), scope, out);
    return Flow::kNormal;
  }

  Flow run_for(const Statement& statement, const Value& iterable, const ScopePtr& scope, Index nesting,
               TextBuilder& out) {
    const Level level(meter_);
    std::vector<Value> items = iterate(meter_, iterable);
    if (const Expression* condition = statement.expressions[1].get()) {
      const auto is_left_out = [&](const Value& item) {
        const ScopePtr inner = new_scope(scope);
        assign(inner, statement.targets[0], item);
        return !is_true(evaluate(*condition, inner));
      };
      items.erase(std::remove_if(items.begin(), items.end(), is_left_out), items.end());
    }
    if (items.empty()) {
      return statement.bodies.size() > 1 ? run(statement.bodies[1], new_scope(scope), out) : Flow::kNormal;
    }
    const std::size_t n_bytes = kObjectBytes + items.size() * sizeof(Value);
    const std::shared_ptr<Loop> loop(
        new Loop{&statement, scope, std::move(items), 0, nesting, {}, false, {&meter_, n_bytes}});
    for (; loop->index < loop->items.size(); ++loop->index) {
      const ScopePtr inner = new_scope(scope);
      set(*inner, "loop", Value(std::shared_ptr<Loop>(loop)));
      assign(inner, statement.targets[0], loop->items[loop->index]);
      if (run(statement.bodies[0], inner, out) == Flow::kBreak) break;
    }
    loop->scope.reset();
    return Flow::kNormal;
  }

  // {% set x %} and {% filter f %}: the text of a body, through filters, to a name or to `out`.
  Flow run_captured(const Statement& statement, const ScopePtr& scope, TextBuilder* out) {
    TextBuilder text(meter_);
    const Flow flow = run(statement.bodies[0], new_scope(scope), text);
    if (flow != Flow::kNormal) return flow;
    Value value = make_string(&meter_, text.take(), autoescapes_);
    for (const Suffix& suffix : statement.suffixes) value = apply(suffix, value, scope);
    if (out != nullptr) {
      print(*out, value);
    } else {
      assign(scope, statement.targets[0], value);
    }
    return Flow::kNormal;
  }

  Value macro_value(const Macro& macro, const ScopePtr& scope) {
    kept_scopes_.push_back(scope);
    scope->charge.add(sizeof(ScopePtr));
    return Value(std::shared_ptr<Function>(
        new Function{Function::Kind::kMacro, macro.name, {}, &macro, scope, false, {&meter_, kObjectBytes}}));
  }

  void define_macro(const Statement& statement, const ScopePtr& scope) {
    set(*scope, statement.macro->name, macro_value(*statement.macro, scope));
  }

  void run_call(const Statement& statement, const ScopePtr& scope, TextBuilder& out) {
    const Expression& whole = *statement.expressions[0];
    Value callee = evaluate(*whole.items[0], scope);
    for (std::size_t i = 0; i + 1 < whole.suffixes.size(); ++i)
      callee = apply(whole.suffixes[i], callee, scope);
    Arguments arguments = evaluate_arguments(whole.suffixes.back().arguments, scope);
    arguments.named.emplace_back("caller", macro_value(*statement.macro, scope));
    print(out, call(callee, arguments));
  }

  Flow run_with(const Statement& statement, const ScopePtr& scope, TextBuilder& out) {
    const ScopePtr inner = new_scope(scope);
    for (std::size_t i = 0; i < statement.targets.size(); ++i) {
      assign(inner, statement.targets[i], evaluate(*statement.expressions[i], scope));
    }
    return run(statement.bodies[0], inner, out);
  }

  Flow run_autoescape(const Statement& statement, const ScopePtr& scope, TextBuilder& out) {
    const bool escapes = is_true(evaluate(*statement.expressions[0], scope));
    const bool before = std::exchange(autoescapes_, escapes);
    const Flow flow = run(statement.bodies[0], new_scope(scope), out);
    autoescapes_ = before;
    return flow;
  }

  // ---- Expressions ----

  Value evaluate(const Expression& expression, const ScopePtr& scope) {
    using Kind = Expression::Kind;
    const Level level(meter_);
    switch (expression.kind) {
      case Kind::kConstant: return expression.constant;
      case Kind::kName: return look_up(*scope, expression.name);
      case Kind::kList: return make_list(meter_, evaluate_all(expression.items, scope));
      case Kind::kTuple: return make_tuple(meter_, evaluate_all(expression.items, scope));
      case Kind::kDict: return evaluate_dict(expression, scope);
      case Kind::kConcat: return evaluate_concat(expression, scope);
      case Kind::kArithmetic: return evaluate_arithmetic(expression, scope);
      case Kind::kNegative: return negate(evaluate(*expression.items[0], scope));
      case Kind::kPositive: return evaluate_positive(expression, scope);
      case Kind::kNot: return Value(!is_true(evaluate(*expression.items[0], scope)));
      case Kind::kAnd:
      case Kind::kOr: return evaluate_logic(expression, scope);
      case Kind::kCompare: return evaluate_comparison(expression, scope);
      case Kind::kConditional: return evaluate_conditional(expression, scope);
      case Kind::kSuffixed: return evaluate_suffixed(expression, scope);
    }
    return {};
  }

  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions, const ScopePtr& scope) {
    std::vector<Value> values;
    values.reserve(expressions.size());
    for (const ExpressionPtr& expression : expressions) values.push_back(evaluate(*expression, scope));
    return values;
  }

  Value evaluate_dict(const Expression& expression, const ScopePtr& scope) {
    DictBuilder dict(meter_);
    for (std::size_t i = 0; i < expression.items.size(); i += 2) {
      const Value key = evaluate(*expression.items[i], scope);
      dict.set(key, evaluate(*expression.items[i + 1], scope));
    }
    return dict.take();
  }

  Value evaluate_concat(const Expression& expression, const ScopePtr& scope) {
    TextBuilder text(meter_);
    for (const ExpressionPtr& item : expression.items) print(text, evaluate(*item, scope));
    return make_string(&meter_, text.take(), autoescapes_);
  }

  Value evaluate_arithmetic(const Expression& expression, const ScopePtr& scope) {
    Value value = evaluate(*expression.items[0], scope);
    for (std::size_t i = 0; i < expression.signs.size(); ++i) {
      value = combine(expression.signs[i], value, evaluate(*expression.items[i + 1], scope));
    }
    return value;
  }

  Value combine(std::string_view sign, const Value& a, const Value& b) {
    if (sign == "+") return add(meter_, a, b);
    if (sign == "*") return multiply(meter_, a, b);
    if (sign == "**") return power(a, b);
    if (sign == "%" && a.string() != nullptr) return PercentFormatter(meter_, b).format(*a.string());
    if (!a.is_number() || !b.is_number()) fail_operands(sign, a, b);
    if (sign == "//" || sign == "%") return floor_divide(a, b, sign == "%");
    if (sign == "-") {
      if (a.is_float() || b.is_float()) return Value(as_double(a) - as_double(b));
      return Value(checked_subtract(*as_integer(a), *as_integer(b)));
    }
    if (as_double(b) == 0) fail(a.is_float() || b.is_float() ? "float division by zero" : "division by zero");
    return Value(as_double(a) / as_double(b));
  }

  Value evaluate_positive(const Expression& expression, const ScopePtr& scope) {
    const Value value = evaluate(*expression.items[0], scope);
    require_defined(value);
    if (!value.is_number()) fail("bad operand type for unary +: '", type_name(value), "'");
    return value.is_bool() ? Value(*as_integer(value)) : value;
  }

  Value evaluate_logic(const Expression& expression, const ScopePtr& scope) {
    const bool stops_at = expression.kind == Expression::Kind::kOr;
    Value value;
    for (const ExpressionPtr& item : expression.items) {
      value = evaluate(*item, scope);
      if (is_true(value) == stops_at) break;
    }
    return value;
  }

  Value evaluate_comparison(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(*expression.items[0], scope);
    for (std::size_t i = 0; i < expression.signs.size(); ++i) {
      Value right = evaluate(*expression.items[i + 1], scope);
      const std::string_view sign = expression.signs[i];
      const bool holds = sign == "in"       ? contains(meter_, right, left)
                         : sign == "not in" ? !contains(meter_, right, left)
                                            : compare_by(meter_, sign, left, right);
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Value evaluate_conditional(const Expression& expression, const ScopePtr& scope) {
    if (is_true(evaluate(*expression.items[1], scope))) return evaluate(*expression.items[0], scope);
    if (expression.items[2]) return evaluate(*expression.items[2], scope);
    return make_undefined("the inline if-expression evaluated to false and no else section was defined.");
  }

  Value evaluate_suffixed(const Expression& expression, const ScopePtr& scope) {
    Value value = evaluate(*expression.items[0], scope);
    for (const Suffix& suffix : expression.suffixes) value = apply(suffix, value, scope);
    return value;
  }

  Value apply(const Suffix& suffix, const Value& value, const ScopePtr& scope) {
    switch (suffix.kind) {
      case Suffix::Kind::kAttribute: return get_attribute(meter_, value, suffix.name);
      case Suffix::Kind::kItem: return get_item(meter_, value, evaluate(*suffix.items[0], scope));
      case Suffix::Kind::kSlice: return apply_slice(suffix, value, scope);
      case Suffix::Kind::kCall: return call(value, evaluate_arguments(suffix.arguments, scope));
      case Suffix::Kind::kFilter:
        return apply_filter(meter_, suffix.name, value, evaluate_arguments(suffix.arguments, scope));
      case Suffix::Kind::kTest:
        return Value(apply_test(meter_, suffix.name, value, evaluate_arguments(suffix.arguments, scope)) !=
                     suffix.is_negated);
    }
    return {};
  }

  Value apply_slice(const Suffix& suffix, const Value& value, const ScopePtr& scope) {
    Value bounds[3];
    for (std::size_t i = 0; i < 3; ++i) {
      if (suffix.items[i]) bounds[i] = evaluate(*suffix.items[i], scope);
    }
    return get_slice(meter_, value, bounds[0], bounds[1], bounds[2]);
  }

  Arguments evaluate_arguments(const CallArguments& written, const ScopePtr& scope) {
    Arguments arguments;
    arguments.positional = evaluate_all(written.positional, scope);
    if (written.list) {
      for (Value& value : iterate(meter_, evaluate(*written.list, scope)))
        arguments.positional.push_back(std::move(value));
    }
    for (const auto& [name, expression] : written.named)
      arguments.named.emplace_back(name, evaluate(*expression, scope));
    if (!written.mapping) return arguments;
    const Value mapping = evaluate(*written.mapping, scope);
    require_defined(mapping);
    if (mapping.dict() == nullptr) fail("argument after ** must be a mapping, not ", type_name(mapping));
    meter_.step(mapping.dict()->entries.size() * sizeof(Value));
    for (const auto& [key, value] : mapping.dict()->entries) {
      if (key.string() == nullptr) fail("keywords must be strings");
      const std::string& name = key.string()->text;
      for (const auto& [other, expression] : written.named) {
        if (other == name) fail("got multiple values for keyword argument '", name, "'");
      }
      arguments.named.emplace_back(name, value);
    }
    return arguments;
  }

  // ---- Calls ----

  Value make_function(Function::Kind kind, std::string_view name, Value self = {}) {
    return Value(std::shared_ptr<Function>(new Function{
        kind, std::string(name), std::move(self), nullptr, nullptr, false, {&meter_, kObjectBytes}}));
  }

  Value call(const Value& callee, const Arguments& arguments) {
    const Level level(meter_);
    require_defined(callee);
    if (callee.loop() != nullptr) return call_loop(callee, arguments);
    Function* function = callee.function();
    if (function == nullptr) fail("'", type_name(callee), "' object is not callable");
    switch (function->kind) {
      case Function::Kind::kMethod: return call_method(meter_, function->self, function->name, arguments);
      case Function::Kind::kMacro: return call_macro(*function, arguments);
      case Function::Kind::kJoiner: {
        const BoundArguments none("joiner", arguments, {});
        return std::exchange(function->is_used, true) ? function->self : make_string(meter_, "");
      }
      case Function::Kind::kGlobal: return call_global(function->name, arguments);
    }
    return {};
  }

  // loop(items) in a recursive loop.
  Value call_loop(const Value& callee, const Arguments& arguments) {
    const std::shared_ptr<Loop> loop = *callee.get_if<std::shared_ptr<Loop>>();
    if (!loop->statement->is_recursive)
      fail("The loop must have the 'recursive' marker to be called recursively.");
    if (!loop->scope) fail("the loop has ended");
    const Value& items = BoundArguments("loop", arguments, {"iterable"}).required("iterable");
    TextBuilder text(meter_);
    run_for(*loop->statement, items, loop->scope, loop->nesting + 1, text);
    return make_string(&meter_, text.take(), autoescapes_);
  }

  Value call_macro(const Function& function, const Arguments& arguments) {
    const Macro& macro = *function.macro;
    const ScopePtr scope = new_scope(function.scope);
    bind_macro(macro, arguments, scope);
    TextBuilder text(meter_);
    run(macro.body, scope, text);
    return make_string(&meter_, text.take(), autoescapes_);
  }

  void bind_macro(const Macro& macro, const Arguments& arguments, const ScopePtr& scope) {
    const std::size_t n_parameters = macro.parameters.size();
    const std::size_t n_required = n_parameters - macro.defaults.size();
    const auto is_parameter = [&](std::string_view name) {
      return std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end();
    };
    DictBuilder others(meter_);
    Value caller = make_undefined("No caller defined");
    for (const auto& [name, value] : arguments.named) {
      meter_.step(n_parameters);
      const auto place = std::find(macro.parameters.begin(), macro.parameters.end(), name);
      if (place != macro.parameters.end()) {
        if (static_cast<std::size_t>(place - macro.parameters.begin()) < arguments.positional.size()) {
          fail("macro '", macro.name, "' got multiple values for argument '", name, "'");
        }
        continue;
      }
      if (name == "caller" && macro.uses_caller) {
        caller = value;
      } else if (macro.uses_kwargs) {
        others.set(name, value);
      } else {
        fail("macro '", macro.name, "' takes no keyword argument '", name, "'");
      }
    }
    if (arguments.positional.size() > n_parameters && !macro.uses_varargs) {
      fail("macro '", macro.name, "' takes not more than ", n_parameters, " argument(s)");
    }
    for (std::size_t i = 0; i < n_parameters; ++i) {
      const std::string& name = macro.parameters[i];
      const Value* given = i < arguments.positional.size() ? &arguments.positional[i] : nullptr;
      for (const auto& [other, value] : arguments.named) {
        if (given == nullptr && other == name) given = &value;
      }
      if (given != nullptr) {
        set(*scope, name, *given);
      } else if (i >= n_required) {
        set(*scope, name, evaluate(*macro.defaults[i - n_required], scope));
      } else {
        set(*scope, name, make_undefined("parameter '" + name + "' was not provided"));
      }
    }
    if (macro.uses_caller && !is_parameter("caller")) set(*scope, "caller", caller);
    if (macro.uses_kwargs && !is_parameter("kwargs")) set(*scope, "kwargs", others.take());
    if (macro.uses_varargs && !is_parameter("varargs")) {
      const auto first = arguments.positional.begin() +
                         static_cast<Index>(std::min(n_parameters, arguments.positional.size()));
      set(*scope, "varargs", make_tuple(meter_, {first, arguments.positional.end()}));
    }
  }

  Value call_global(std::string_view name, const Arguments& arguments) {
    if (name == "raise_exception") {
      TextBuilder message(meter_);
      append_str(message, BoundArguments(name, arguments, {"message"}).required("message"));
      fail(message.text());
    }
    if (name == "namespace") return make_namespace(arguments);
    if (name == "dict") return make_dict(name, arguments);
    if (name == "range") return make_range(arguments);
    if (name == "strftime_now") {
      const String& format = BoundArguments(name, arguments, {"format"}).text("format");
      TextBuilder text(meter_);
      CalendarTime(clock_()).format(text, format.text);
      return make_string(&meter_, text.take());
    }
    if (name == "joiner") {
      const String* separator = BoundArguments(name, arguments, {"sep"}).optional_text("sep");
      return make_function(
          Function::Kind::kJoiner, name,
          separator == nullptr ? make_string(meter_, ", ") : make_string(meter_, separator->text));
    }
    if (name == "cycler") {
      if (arguments.positional.empty() || !arguments.named.empty())
        fail("at least one item has to be provided");
      return make_sequence(meter_, Sequence::Kind::kCycler, arguments.positional);
    }
    kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: ", name, "()");
  }

  Value make_dict(std::string_view name, const Arguments& arguments) {
    DictBuilder dict(meter_);
    if (arguments.positional.size() > 1) {
      fail(name, " expected at most 1 argument, got ", arguments.positional.size());
    }
    for (const Value& source : arguments.positional) {
      if (source.dict() != nullptr) {
        dict.add(*source.dict());
        continue;
      }
      for (const Value& pair : iterate(meter_, source)) {
        const std::vector<Value> parts = iterate(meter_, pair);
        if (parts.size() != 2)
          fail("dictionary update sequence element has length ", parts.size(), "; 2 is required");
        dict.set(parts[0], parts[1]);
      }
    }
    for (const auto& [key, value] : arguments.named) dict.set(key, value);
    return dict.take();
  }

  Value make_namespace(const Arguments& arguments) {
    const Value members = make_dict("namespace", arguments);
    const std::shared_ptr<Namespace> name_space(new Namespace{{}, {&meter_, kObjectBytes}});
    kept_namespaces_.push_back(name_space);
    for (const auto& [key, value] : members.dict()->entries) {
      if (key.string() == nullptr) fail("namespace: the name of a member must be str, not ", type_name(key));
      set_member(*name_space, key.string()->text, value);
    }
    return Value(std::shared_ptr<Namespace>(name_space));
  }

  Value make_range(const Arguments& arguments) {
    const auto& given = arguments.positional;
    if (!arguments.named.empty()) fail("range() takes no keyword arguments");
    if (given.empty() || given.size() > 3) fail("range expected 1 to 3 arguments, got ", given.size());
    Integer bounds[3] = {0, 0, 1};
    for (std::size_t i = 0; i < given.size(); ++i) bounds[given.size() == 1 ? 1 : i] = as_index(given[i]);
    const auto [start, stop, step] = bounds;
    if (step == 0) fail("range() arg 3 must not be zero");
    const Integer span = step > 0 ? stop - start : start - stop;
    const Integer stride = step > 0 ? step : -step;
    const Integer n = span <= 0 ? 0 : (span - 1) / stride + 1;
    if (n > static_cast<Integer>(kMaxRange)) {
      fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kMaxRange, ").");
    }
    ListBuilder items(meter_);
    for (Integer i = 0; i < n; ++i) items.push(Value(Integer{start + i * step}));
    auto range = new_sequence(meter_, Sequence::Kind::kRange, items.take());
    std::copy(std::begin(bounds), std::end(bounds), range->range);
    return Value(SequencePtr(std::move(range)));
  }

  Meter& meter_;
  const Clock& clock_;
  std::vector<ScopePtr> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> kept_namespaces_;
  ScopePtr globals_;
  bool autoescapes_ = false;
};

}  // namespace jinja
}  // namespace kvdecode
