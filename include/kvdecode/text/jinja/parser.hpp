// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/parser.hpp> - tokens to a tree. Nesting is bounded; the messages are those of the
// reference.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/access.hpp>
#include <kvdecode/text/jinja/filter_names.hpp>
#include <kvdecode/text/jinja/lexer.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/syntax.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// Reads one template.
class Parser {
 public:
  Parser(std::string_view source, const Limits& limits)
      : lexer_(source), tokens_(lexer_.run()), max_nesting_(limits.max_nesting) {
    check_token();
  }

  Body run() {
    Body body = statements({});
    if (!unknown_.empty()) fail_syntax(unknown_.front().line, unknown_.front().message);
    return body;
  }

 private:
  using Kind = Token::Kind;
  using Make = Expression::Kind;

  // One level deeper for as long as it lives.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser.nesting_ > parser.max_nesting_) {
        kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: line ", parser.current().line,
                                ": nested deeper than max_nesting ", parser.max_nesting_);
      }
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // ---- Tokens ----

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void check_token() const {
    if (current().kind == Kind::kError) fail_syntax(current().line, lexer_.error());
  }
  Token next() {
    const Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    check_token();
    return token;
  }

  static bool is_operator(const Token& token, std::string_view text) {
    return token.kind == Kind::kOperator && token.text == text;
  }
  static bool is_name(const Token& token, std::string_view text) {
    return token.kind == Kind::kName && token.text == text;
  }
  bool at_operator(std::string_view text) const { return is_operator(current(), text); }
  bool at_name(std::string_view text) const { return is_name(current(), text); }
  bool skip_operator(std::string_view text) {
    if (!at_operator(text)) return false;
    next();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!at_name(text)) return false;
    next();
    return true;
  }

  static std::string described(const Token& token) {
    switch (token.kind) {
      case Kind::kData: return "template data / text";
      case Kind::kBlockBegin: return "begin of statement block";
      case Kind::kBlockEnd: return "end of statement block";
      case Kind::kVariableBegin: return "begin of print statement";
      case Kind::kVariableEnd: return "end of print statement";
      case Kind::kInteger: return "integer";
      case Kind::kFloat: return "float";
      case Kind::kString: return "string";
      case Kind::kEnd: return "end of template";
      case Kind::kName:
      case Kind::kOperator:
      case Kind::kError: break;
    }
    return std::string(token.text.substr(0, 100));
  }

  void expect_operator(std::string_view text) {
    if (!at_operator(text)) fail_expected("'" + std::string(text) + "'");
    next();
  }
  std::string expect_any_name() {
    if (current().kind != Kind::kName) fail_expected("'name'");
    return std::string(next().text);
  }
  void expect_block_end() {
    if (current().kind != Kind::kBlockEnd) fail_expected("'end of statement block'");
    next();
  }
  [[noreturn]] void fail_expected(const std::string& what) const {
    if (current().kind == Kind::kEnd)
      fail_syntax(current().line, "unexpected end of template, expected ", what, ".");
    fail_syntax(current().line, "expected token ", what, ", got '", described(current()), "'");
  }

  static ExpressionPtr make(Make kind, ExpressionPtr first = nullptr) {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    if (first) node->items.push_back(std::move(first));
    return node;
  }
  static ExpressionPtr make_constant(Value value) {
    ExpressionPtr node = make(Make::kConstant);
    node->constant = std::move(value);
    return node;
  }

  // ---- Unknown filters and tests: an error, unless a condition may keep them from being reached ----

  struct Unknown {
    Index line;
    std::string message;
  };
  void check_known(std::string_view name, bool is_filter) {
    const bool known = is_filter ? is_one_of(name, kFilterNames) : is_one_of(name, kTestNames);
    if (known || is_lazy_) return;
    unknown_.push_back({current().line, (is_filter ? "No filter named '" : "No test named '") +
                                            std::string(name.substr(0, 100)) + "'."});
  }

  // ---- Statements ----

  // Up to a tag of one of these names, which becomes the current token; to the end of the text if there are none.
  Body statements(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Body body;
    for (;;) {
      switch (current().kind) {
        case Kind::kData: {
          Statement text;
          text.text = next().text;
          body.push_back(std::move(text));
          break;
        }
        case Kind::kVariableBegin: {
          next();
          Statement print;
          print.kind = Statement::Kind::kPrint;
          print.expressions.push_back(tuple());
          if (current().kind != Kind::kVariableEnd) fail_expected("'end of print statement'");
          next();
          body.push_back(std::move(print));
          break;
        }
        case Kind::kBlockBegin: {
          next();
          if (current().kind == Kind::kName &&
              std::find(ends.begin(), ends.end(), current().text) != ends.end())
            return body;
          statement(body);
          expect_block_end();
          break;
        }
        default:
          if (ends.size() != 0) fail_unclosed(ends);
          return body;
      }
    }
  }

  static std::string listed(std::initializer_list<std::string_view> names) {
    std::string text;
    for (const std::string_view name : names)
      text += (text.empty() ? "'" : " or '") + std::string(name) + "'";
    return text;
  }
  [[noreturn]] void fail_unclosed(std::initializer_list<std::string_view> ends) const {
    fail_syntax(current().line,
                "Unexpected end of template. Jinja was looking for the following tags: ", listed(ends),
                ". The innermost block that needs to be closed is '",
                open_tags_.empty() ? "" : open_tags_.back(), "'.");
  }

  // The body of a tag up to its end tag, the tag's own end included on both sides.
  Body tag_body(std::initializer_list<std::string_view> ends) {
    skip_operator(":");
    expect_block_end();
    return statements(ends);
  }

  void statement(Body& body) {
    if (current().kind != Kind::kName) fail_syntax(current().line, "tag name expected");
    const Token tag = next();
    const std::string name(tag.text);
    open_tags_.push_back(name);
    if (name == "if") {
      body.push_back(if_statement());
    } else if (name == "for") {
      body.push_back(for_statement());
    } else if (name == "set") {
      body.push_back(set_statement());
    } else if (name == "macro") {
      body.push_back(macro_statement());
    } else if (name == "call") {
      body.push_back(call_statement());
    } else if (name == "filter") {
      body.push_back(filter_statement());
    } else if (name == "with") {
      body.push_back(with_statement());
    } else if (name == "autoescape") {
      Statement statement = make_statement(Statement::Kind::kAutoescape);
      statement.expressions.push_back(expression());
      statement.bodies.push_back(scoped_body({"endautoescape"}));
      next();
      body.push_back(std::move(statement));
    } else if (name == "block" || name == "generation") {
      body.push_back(block_statement(name));
    } else if (name == "print") {
      Statement statement = make_statement(Statement::Kind::kPrint);
      while (current().kind != Kind::kBlockEnd) {
        if (!statement.expressions.empty()) expect_operator(",");
        statement.expressions.push_back(expression());
      }
      body.push_back(std::move(statement));
    } else if (name == "break" || name == "continue") {
      if (n_loops_ == 0) fail_syntax(tag.line, "'", name, "' outside loop");
      body.push_back(make_statement(name == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue));
    } else if (name == "include" || name == "import" || name == "from" || name == "extends") {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: line ", tag.line, ": the tag '", name,
                              "': there are no other templates");
    } else {
      open_tags_.pop_back();
      fail_unknown_tag(tag);
    }
    open_tags_.pop_back();
  }

  [[noreturn]] void fail_unknown_tag(const Token& tag) const {
    const std::string inside =
        open_tags_.empty() ? ""
                           : " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
    fail_syntax(tag.line, "Encountered unknown tag '", tag.text.substr(0, 100), "'.", inside);
  }

  static Statement make_statement(Statement::Kind kind) {
    Statement statement;
    statement.kind = kind;
    return statement;
  }

  // A body that is not reached lazily, whatever is around it.
  Body scoped_body(std::initializer_list<std::string_view> ends) {
    const bool was_lazy = std::exchange(is_lazy_, false);
    Body body = tag_body(ends);
    is_lazy_ = was_lazy;
    return body;
  }

  Statement if_statement() {
    Statement statement = make_statement(Statement::Kind::kIf);
    const bool was_lazy = std::exchange(is_lazy_, true);
    for (;;) {
      statement.expressions.push_back(tuple(false));
      statement.bodies.push_back(tag_body({"elif", "else", "endif"}));
      const Token end = next();
      if (end.text == "elif") continue;
      if (end.text == "else") {
        statement.bodies.push_back(tag_body({"endif"}));
        next();
      }
      break;
    }
    is_lazy_ = was_lazy;
    return statement;
  }

  Statement for_statement() {
    Statement statement = make_statement(Statement::Kind::kFor);
    statement.targets.push_back(target({"in"}, false));
    if (!skip_name("in")) fail_expected("'in'");
    statement.expressions.push_back(tuple(false, {"recursive"}, false));
    const bool was_lazy = std::exchange(is_lazy_, false);
    statement.expressions.push_back(skip_name("if") ? expression() : nullptr);
    statement.is_recursive = skip_name("recursive");
    ++n_loops_;
    statement.bodies.push_back(tag_body({"endfor", "else"}));
    --n_loops_;
    if (next().text == "else") {
      statement.bodies.push_back(tag_body({"endfor"}));
      next();
    }
    is_lazy_ = was_lazy;
    return statement;
  }

  Statement set_statement() {
    Statement statement = make_statement(Statement::Kind::kSet);
    statement.targets.push_back(target({}, true));
    if (skip_operator("=")) {
      statement.expressions.push_back(tuple());
      return statement;
    }
    statement.kind = Statement::Kind::kSetBlock;
    while (skip_operator("|")) statement.suffixes.push_back(filter());
    statement.bodies.push_back(scoped_body({"endset"}));
    next();
    return statement;
  }

  Statement macro_statement() {
    Statement statement = make_statement(Statement::Kind::kMacro);
    const std::string name = expect_any_name();
    check_assignable(name);
    statement.macro = macro(name, true, {"endmacro"});
    return statement;
  }

  // The parameters and the body of a macro or of a call block.
  std::unique_ptr<Macro> macro(const std::string& name, bool needs_parameters,
                               std::initializer_list<std::string_view> ends, ExpressionPtr* call = nullptr) {
    auto result = std::make_unique<Macro>();
    result->name = name;
    if (needs_parameters || at_operator("(")) parameters(*result);
    if (call != nullptr) {
      *call = expression();
      const bool is_call =
          (*call)->kind == Make::kSuffixed && (*call)->suffixes.back().kind == Suffix::Kind::kCall;
      if (!is_call) fail_syntax(current().line, "expected call");
    }
    const Uses outside = std::exchange(uses_, Uses{});
    const Index loops = std::exchange(n_loops_, 0);
    result->body = scoped_body(ends);
    next();
    n_loops_ = loops;
    result->uses_caller = uses_.caller;
    result->uses_kwargs = uses_.kwargs;
    result->uses_varargs = uses_.varargs;
    uses_ = {uses_.caller || outside.caller, uses_.kwargs || outside.kwargs,
             uses_.varargs || outside.varargs};
    return result;
  }

  void parameters(Macro& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      const Index line = current().line;
      macro.parameters.push_back(expect_any_name());
      check_assignable(macro.parameters.back());
      if (skip_operator("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_syntax(line, "non-default argument follows default argument");
      }
    }
    expect_operator(")");
  }

  Statement call_statement() {
    Statement statement = make_statement(Statement::Kind::kCallBlock);
    ExpressionPtr call;
    statement.macro = macro("caller", false, {"endcall"}, &call);
    statement.expressions.push_back(std::move(call));
    return statement;
  }

  Statement filter_statement() {
    Statement statement = make_statement(Statement::Kind::kFilterBlock);
    do {
      statement.suffixes.push_back(filter());
    } while (skip_operator("|"));
    statement.bodies.push_back(scoped_body({"endfilter"}));
    next();
    return statement;
  }

  Statement with_statement() {
    Statement statement = make_statement(Statement::Kind::kWith);
    while (current().kind != Kind::kBlockEnd) {
      if (!statement.targets.empty()) expect_operator(",");
      statement.targets.push_back(target({}, false, true));
      expect_operator("=");
      statement.expressions.push_back(expression());
    }
    statement.bodies.push_back(scoped_body({"endwith"}));
    next();
    return statement;
  }

  Statement block_statement(std::string_view name) {
    Statement statement = make_statement(Statement::Kind::kScope);
    if (name == "generation") {
      statement.bodies.push_back(scoped_body({"endgeneration"}));
      next();
      return statement;
    }
    const std::string block = expect_any_name();
    skip_name("scoped");
    skip_name("required");
    const Index loops = std::exchange(n_loops_, 0);
    statement.bodies.push_back(scoped_body({"endblock"}));
    n_loops_ = loops;
    next();
    skip_name(block);
    return statement;
  }

  static bool is_constant_name(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
           name == "None";
  }
  void check_assignable(std::string_view name) const {
    if (is_constant_name(name)) fail_syntax(current().line, "can't assign to 'const'");
  }

  Target target(std::initializer_list<std::string_view> ends, bool with_namespace, bool is_single = false) {
    Target result;
    for (;;) {
      if (!result.elements.empty() && ends_tuple(ends)) break;
      result.elements.push_back(single_target(with_namespace));
      if (is_single || !at_operator(",")) break;
      result.is_tuple = true;
      next();
    }
    if (result.is_tuple) return result;
    Target only = std::move(result.elements.front());
    return only;
  }

  Target single_target(bool with_namespace) {
    const Nested nested(*this);
    if (skip_operator("(")) {
      Target result = target({}, with_namespace);
      expect_operator(")");
      return result;
    }
    if (current().kind != Kind::kName) fail_unexpected();
    Target result;
    result.name = next().text;
    check_assignable(result.name);
    if (with_namespace && skip_operator(".")) result.attribute = expect_any_name();
    return result;
  }

  // ---- Expressions ----

  [[noreturn]] void fail_unexpected() const {
    fail_syntax(current().line, "unexpected '", described(current()), "'");
  }

  bool ends_tuple(std::initializer_list<std::string_view> names) const {
    if (current().kind == Kind::kVariableEnd || current().kind == Kind::kBlockEnd || at_operator(")"))
      return true;
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return at_name(name); });
  }

  // One expression, or several separated by commas: a tuple.
  ExpressionPtr tuple(bool with_condition = true, std::initializer_list<std::string_view> ends = {},
                      bool in_parentheses = false) {
    const Nested nested(*this);
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    for (;;) {
      if (!items.empty() && !at_operator(",")) break;
      if (!items.empty()) {
        next();
        is_tuple = true;
      }
      if (ends_tuple(ends)) break;
      items.push_back(with_condition ? expression() : or_expression());
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items.front());
      if (!in_parentheses)
        fail_syntax(current().line, "Expected an expression, got '", described(current()), "'");
    }
    ExpressionPtr node = make(Make::kTuple);
    node->items = std::move(items);
    return node;
  }

  // a if b else c
  ExpressionPtr expression() {
    const Nested nested(*this);
    const std::size_t n_unknown = unknown_.size();
    ExpressionPtr value = or_expression();
    while (skip_name("if")) {
      ExpressionPtr node = make(Make::kConditional, std::move(value));
      node->items.push_back(or_expression());
      node->items.push_back(skip_name("else") ? expression() : nullptr);
      value = std::move(node);
      unknown_.resize(std::min(n_unknown, unknown_.size()));
      check_chain(*value);
    }
    return value;
  }

  // x if a if b if c …: the one chain that nests on its left.
  void check_chain(const Expression& node) {
    Index depth = 0;
    for (const Expression* inner = &node; inner->kind == Make::kConditional; inner = inner->items[0].get())
      ++depth;
    if (depth > max_nesting_) {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: line ", current().line,
                              ": nested deeper than max_nesting ", max_nesting_);
    }
  }

  ExpressionPtr or_expression() {
    ExpressionPtr first = and_expression();
    if (!at_name("or")) return first;
    ExpressionPtr node = make(Make::kOr, std::move(first));
    while (skip_name("or")) node->items.push_back(and_expression());
    return node;
  }

  ExpressionPtr and_expression() {
    ExpressionPtr first = not_expression();
    if (!at_name("and")) return first;
    ExpressionPtr node = make(Make::kAnd, std::move(first));
    while (skip_name("and")) node->items.push_back(not_expression());
    return node;
  }

  ExpressionPtr not_expression() {
    if (!at_name("not")) return comparison();
    const Nested nested(*this);
    next();
    return make(Make::kNot, not_expression());
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = sum();
    ExpressionPtr node;
    for (;;) {
      std::string_view sign;
      for (const std::string_view candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (at_operator(candidate)) sign = candidate;
      }
      if (at_name("in")) sign = "in";
      if (at_name("not") && is_name(ahead(), "in")) sign = "not in";
      if (sign.empty()) return node ? std::move(node) : std::move(first);
      next();
      if (sign == "not in") next();
      if (!node) node = make(Make::kCompare, std::move(first));
      node->signs.push_back(sign);
      node->items.push_back(sum());
    }
  }

  template <class Operand>
  ExpressionPtr chain(std::initializer_list<std::string_view> signs, Operand&& operand) {
    ExpressionPtr first = operand();
    ExpressionPtr node;
    for (;;) {
      const auto sign =
          std::find_if(signs.begin(), signs.end(), [&](std::string_view text) { return at_operator(text); });
      if (sign == signs.end()) return node ? std::move(node) : std::move(first);
      next();
      if (!node) node = make(Make::kArithmetic, std::move(first));
      node->signs.push_back(*sign);
      node->items.push_back(operand());
    }
  }

  ExpressionPtr sum() {
    return chain({"+", "-"}, [&] { return concatenation(); });
  }
  ExpressionPtr concatenation() {
    ExpressionPtr first = product();
    if (!at_operator("~")) return first;
    ExpressionPtr node = make(Make::kConcat, std::move(first));
    while (skip_operator("~")) node->items.push_back(product());
    return node;
  }
  ExpressionPtr product() {
    return chain({"*", "/", "//", "%"}, [&] { return power(); });
  }
  ExpressionPtr power() {
    return chain({"**"}, [&] { return unary(true); });
  }

  ExpressionPtr unary(bool with_filters) {
    ExpressionPtr node;
    if (at_operator("-") || at_operator("+")) {
      const Nested nested(*this);
      const bool is_negative = next().text == "-";
      node = make(is_negative ? Make::kNegative : Make::kPositive, unary(false));
    } else {
      node = primary();
    }
    std::vector<Suffix> suffixes;
    postfix(suffixes);
    while (with_filters) {
      if (skip_operator("|")) {
        suffixes.push_back(filter());
      } else if (skip_name("is")) {
        suffixes.push_back(test());
      } else if (at_operator("(")) {
        suffixes.push_back(call());
      } else {
        break;
      }
    }
    return suffixed(std::move(node), std::move(suffixes));
  }

  static ExpressionPtr suffixed(ExpressionPtr node, std::vector<Suffix> suffixes) {
    if (suffixes.empty()) return node;
    ExpressionPtr whole = make(Make::kSuffixed, std::move(node));
    whole->suffixes = std::move(suffixes);
    return whole;
  }

  void postfix(std::vector<Suffix>& suffixes) {
    for (;;) {
      if (skip_operator(".")) {
        Suffix suffix;
        if (current().kind == Kind::kInteger) {
          suffix.kind = Suffix::Kind::kItem;
          suffix.items.push_back(make_constant(Value(integer(next()))));
        } else if (current().kind == Kind::kName) {
          suffix.name = next().text;
        } else {
          fail_syntax(current().line, "expected name or number");
        }
        suffixes.push_back(std::move(suffix));
      } else if (skip_operator("[")) {
        suffixes.push_back(subscript());
      } else if (at_operator("(")) {
        suffixes.push_back(call());
      } else {
        return;
      }
    }
  }

  Suffix subscript() {
    const Nested nested(*this);
    std::vector<Suffix> parts;
    while (!at_operator("]") || parts.empty()) {
      if (!parts.empty()) expect_operator(",");
      parts.push_back(subscript_part());
    }
    expect_operator("]");
    if (parts.size() == 1) return std::move(parts.front());
    ExpressionPtr key = make(Make::kTuple);
    for (Suffix& part : parts) {
      if (part.kind == Suffix::Kind::kSlice) {
        kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: line ", current().line,
                                ": several slices");
      }
      key->items.push_back(std::move(part.items.front()));
    }
    Suffix suffix;
    suffix.kind = Suffix::Kind::kItem;
    suffix.items.push_back(std::move(key));
    return suffix;
  }

  Suffix subscript_part() {
    Suffix suffix;
    suffix.kind = Suffix::Kind::kItem;
    ExpressionPtr first;
    if (!at_operator(":")) {
      first = expression();
      if (!at_operator(":")) {
        suffix.items.push_back(std::move(first));
        return suffix;
      }
    }
    suffix.kind = Suffix::Kind::kSlice;
    suffix.items.push_back(std::move(first));
    while (suffix.items.size() < 3 && skip_operator(":")) {
      const bool is_open = at_operator(":") || at_operator("]") || at_operator(",");
      suffix.items.push_back(is_open ? nullptr : expression());
    }
    suffix.items.resize(3);
    return suffix;
  }

  Suffix call() {
    const Nested nested(*this);
    Suffix suffix;
    suffix.kind = Suffix::Kind::kCall;
    CallArguments& arguments = suffix.arguments;
    expect_operator("(");
    bool is_first = true;
    while (!at_operator(")")) {
      if (!is_first) {
        expect_operator(",");
        if (at_operator(")")) break;
      }
      is_first = false;
      const Index line = current().line;
      const auto check = [&](bool good) {
        if (!good) fail_syntax(line, "invalid syntax for function call expression");
      };
      if (skip_operator("*")) {
        check(!arguments.list && !arguments.mapping);
        arguments.list = expression();
      } else if (skip_operator("**")) {
        check(!arguments.mapping);
        arguments.mapping = expression();
      } else if (current().kind == Kind::kName && is_operator(ahead(), "=")) {
        check(!arguments.mapping);
        std::string name(next().text);
        next();
        const bool is_new = std::none_of(arguments.named.begin(), arguments.named.end(),
                                         [&](const auto& other) { return other.first == name; });
        if (!is_new) fail_syntax(line, "keyword argument repeated: ", name);
        arguments.named.emplace_back(std::move(name), expression());
      } else {
        check(!arguments.list && !arguments.mapping && arguments.named.empty());
        arguments.positional.push_back(expression());
      }
    }
    expect_operator(")");
    return suffix;
  }

  std::string dotted_name() {
    std::string name = expect_any_name();
    while (skip_operator(".")) name += "." + expect_any_name();
    return name;
  }

  Suffix filter() {
    Suffix suffix;
    const std::string name = dotted_name();
    check_known(name, true);
    if (at_operator("(")) suffix = call();
    suffix.kind = Suffix::Kind::kFilter;
    suffix.name = name;
    return suffix;
  }

  Suffix test() {
    const bool is_negated = skip_name("not");
    const std::string name = dotted_name();
    check_known(name, false);
    Suffix suffix;
    const Kind kind = current().kind;
    const bool has_operand = kind == Kind::kString || kind == Kind::kInteger || kind == Kind::kFloat ||
                             at_operator("[") || at_operator("{") ||
                             (kind == Kind::kName && !at_name("else") && !at_name("or") && !at_name("and"));
    if (at_operator("(")) {
      suffix = call();
    } else if (has_operand) {
      if (at_name("is")) fail_syntax(current().line, "You cannot chain multiple tests with is");
      const Nested nested(*this);
      ExpressionPtr operand = primary();
      std::vector<Suffix> suffixes;
      postfix(suffixes);
      suffix.arguments.positional.push_back(suffixed(std::move(operand), std::move(suffixes)));
    }
    suffix.kind = Suffix::Kind::kTest;
    suffix.name = name;
    suffix.is_negated = is_negated;
    return suffix;
  }

  Integer integer(const Token& token) const {
    const std::optional<Integer> value = parse_integer(token.text, 0);
    if (!value) fail_syntax(token.line, "not an integer: ", token.text.substr(0, 100));
    return *value;
  }

  ExpressionPtr primary() {
    const Token token = current();
    switch (token.kind) {
      case Kind::kName: return name();
      case Kind::kString: {
        std::string text;
        while (current().kind == Kind::kString) append_unescaped(text, next());
        return make_constant(make_string(nullptr, std::move(text)));
      }
      case Kind::kInteger: next(); return make_constant(Value(integer(token)));
      case Kind::kFloat: next(); return make_constant(Value(parse_float(token.text).value_or(0)));
      default: break;
    }
    if (skip_operator("(")) {
      ExpressionPtr node = tuple(true, {}, true);
      expect_operator(")");
      return node;
    }
    if (at_operator("[")) return list();
    if (at_operator("{")) return dict();
    fail_unexpected();
  }

  ExpressionPtr name() {
    const std::string_view text = next().text;
    if (text == "true" || text == "True") return make_constant(Value(true));
    if (text == "false" || text == "False") return make_constant(Value(false));
    if (text == "none" || text == "None") return make_constant(Value());
    ExpressionPtr node = make(Make::kName);
    node->name = text;
    if (text == "caller") uses_.caller = true;
    if (text == "kwargs") uses_.kwargs = true;
    if (text == "varargs") uses_.varargs = true;
    return node;
  }

  ExpressionPtr list() {
    const Nested nested(*this);
    ExpressionPtr node = make(Make::kList);
    expect_operator("[");
    while (!at_operator("]")) {
      if (!node->items.empty()) {
        expect_operator(",");
        if (at_operator("]")) break;
      }
      node->items.push_back(expression());
    }
    expect_operator("]");
    return node;
  }

  ExpressionPtr dict() {
    const Nested nested(*this);
    ExpressionPtr node = make(Make::kDict);
    expect_operator("{");
    while (!at_operator("}")) {
      if (!node->items.empty()) {
        expect_operator(",");
        if (at_operator("}")) break;
      }
      node->items.push_back(expression());
      expect_operator(":");
      node->items.push_back(expression());
    }
    expect_operator("}");
    return node;
  }

  // ---- Literals ----

  static void append_unescaped(std::string& text, const Token& token) {
    const std::string_view source = token.text.substr(1, token.text.size() - 2);
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] != '\\' || i + 1 == source.size()) {
        text += source[i];
        continue;
      }
      const char c = source[++i];
      constexpr std::string_view kLetters = "abfnrtv";
      constexpr std::string_view kCodes = "\a\b\f\n\r\t\v";
      if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos) {
        text += kCodes[letter];
      } else if (c == '\\' || c == '\'' || c == '"') {
        text += c;
      } else if (c == '\n') {
        // A line that goes on.
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        std::size_t n = 0;
        for (; n < 3 && i + n < source.size() && source[i + n] >= '0' && source[i + n] <= '7'; ++n) {
          code = code * 8 + static_cast<char32_t>(source[i + n] - '0');
        }
        i += n - 1;
        kvdecode::detail::utf8_append(text, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code_point(text, token, source.substr(i + 1, n), n, c);
        i += n;
      } else if (c == 'N') {
        kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: line ", token.line,
                                ": a character by its name");
      } else {
        text += '\\';
        text += c;
      }
    }
  }

  static void append_code_point(std::string& text, const Token& token, std::string_view digits, std::size_t n,
                                char kind) {
    const bool is_hex =
        digits.size() == n && digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    const std::optional<Integer> code = is_hex ? parse_integer(digits, 16) : std::nullopt;
    if (!code) fail_syntax(token.line, "truncated \\", std::string(1, kind), " escape");
    if (*code > 0x10FFFF) fail_syntax(token.line, "illegal Unicode character");
    const bool is_surrogate = *code >= 0xD800 && *code < 0xE000;  // half a character
    kvdecode::detail::utf8_append(text, is_surrogate ? 0xFFFD : static_cast<char32_t>(*code));
  }

  struct Uses {
    bool caller = false;
    bool kwargs = false;
    bool varargs = false;
  };

  Lexer lexer_;
  std::vector<Token> tokens_;
  Index max_nesting_;
  std::size_t at_ = 0;
  Index nesting_ = 0;
  Index n_loops_ = 0;
  bool is_lazy_ = false;
  Uses uses_;
  std::vector<std::string> open_tags_;
  std::vector<Unknown> unknown_;
};

}  // namespace jinja
}  // namespace kvdecode
