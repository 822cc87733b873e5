// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/syntax.hpp> - a template as a tree. Chains (a ~ b ~ c, a.b[c] | d, x and y) are lists
// in one node, so that the tree is no deeper than the nesting of the text.
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
struct Statement;
using Body = std::vector<Statement>;

/// The arguments of a call as written.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list;     // *list, or null
  ExpressionPtr mapping;  // **mapping, or null
};

/// What follows an expression: .name, [key], [a:b:c], (…), | filter, is test.
struct Suffix {
  enum class Kind { kAttribute, kItem, kSlice, kCall, kFilter, kTest };
  Kind kind = Kind::kAttribute;
  std::string name;
  std::vector<ExpressionPtr> items;  // kItem: 1; kSlice: start, stop, step, each may be null
  CallArguments arguments;
  bool is_negated = false;  // is not
};

struct Expression {
  enum class Kind {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,        // items: key, value, key, value, …
    kConcat,      // items joined as texts
    kArithmetic,  // items[0] signs[0] items[1] signs[1] …, from the left
    kNegative,
    kPositive,
    kNot,
    kAnd,
    kOr,
    kCompare,      // items[0] signs[0] items[1] and items[1] signs[1] …
    kConditional,  // items: value, condition, other (may be null)
    kSuffixed,     // items[0], then the suffixes in order
  };
  Kind kind = Kind::kConstant;
  Value constant;
  std::string name;
  std::vector<ExpressionPtr> items;
  std::vector<std::string_view> signs;
  std::vector<Suffix> suffixes;
};

/// Where a value goes: a name, a member of a namespace, or several targets.
struct Target {
  std::string name;
  std::string attribute;         // not empty: a member of the namespace `name`
  std::vector<Target> elements;  // not empty: a value for each
  bool is_tuple = false;
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

struct Statement {
  enum class Kind {
    kText,
    kPrint,     // expressions
    kIf,        // expressions[i]: condition of bodies[i]; one body more: else
    kFor,       // targets[0] in expressions[0] if expressions[1] (may be null); bodies: loop, else
    kSet,       // targets[0] = expressions[0]
    kSetBlock,  // targets[0] = bodies[0] through suffixes
    kMacro,
    kCallBlock,    // expressions[0], a call, with the macro as caller
    kFilterBlock,  // bodies[0] through suffixes
    kWith,         // targets = expressions, around bodies[0]
    kScope,        // bodies[0] with names of its own
    kAutoescape,   // expressions[0], bodies[0]
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Body> bodies;
  std::vector<Suffix> suffixes;
  std::unique_ptr<Macro> macro;
  bool is_recursive = false;
};

}  // namespace jinja
}  // namespace kvdecode
