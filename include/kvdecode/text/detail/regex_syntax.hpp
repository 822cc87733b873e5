// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/regex_syntax.hpp> - regular expressions as tokenizer files write them (Oniguruma,
// Ruby syntax) rewritten for PCRE2. What has no exact counterpart is refused by name; nothing is passed on
// unread.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/detail/utf8.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

constexpr std::size_t kMaxPatternBytes = 16384;

// Bodies of PCRE2 classes. PCRE2's \s also has U+180E, its \w lacks marks and connectors.
constexpr std::string_view kSpaceClass =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside brackets, and for \b, Oniguruma counts the superscript digits and fractions of Latin-1 among the
// words.
constexpr std::string_view kBareWordClass =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
// Words of the reference's own code, which uses another engine: with the join controls.
constexpr std::string_view kPlainWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";
constexpr std::string_view kHexClass = "0-9A-Fa-f";

/// Rewrites one pattern. Used once and thrown away.
class RegexTranslator {
 public:
  explicit RegexTranslator(std::string_view pattern) : in_(pattern) {}

  std::string translate() {
    if (in_.size() > kMaxPatternBytes) {
      raise(ErrorCode::kUnsupported, "regular expression of ", in_.size(), " bytes, at most ",
            kMaxPatternBytes);
    }
    if (!is_utf8(in_)) raise(ErrorCode::kBadFile, "regular expression is not valid UTF-8");
    groups_.push_back({});
    while (at_ < in_.size()) step();
    if (groups_.size() != 1) refuse("a group that is not closed");
    close_options(groups_.back());
    if (max_back_reference_ > n_captures_) refuse("a reference to a group that is not there");
    return std::move(out_);
  }

 private:
  struct Group {
    std::size_t start = 0;   // in out_, where the group's first bracket is
    int n_options_open = 0;  // brackets that (?i) opened, closed with the group
    bool caseless = false;
    bool extended = false;
  };

  // A character class as PCRE2 text: `body` inside one pair of brackets, and further alternatives of one
  // character.
  struct ClassParts {
    std::string body;
    std::vector<std::string> others;
  };

  [[noreturn, gnu::cold]] void refuse(std::string_view what) const {
    raise(ErrorCode::kUnsupported, "regular expression ", in_quotes(in_), ": ", what, " near byte ", at_);
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).substr(0, text.size()) == text; }
  bool accept(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  bool caseless() const { return groups_.back().caseless; }

  static void append_point(std::string& out, char32_t c) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "\\x{%X}", static_cast<unsigned>(c));
    out += buffer;
  }

  void begin_atom() {
    atom_ = out_.size();
    has_atom_ = true;
    quantified_ = false;
  }

  void step() {
    const char c = in_[at_];
    switch (c) {
      case '\\': escape(); return;
      case '[':
        ++at_;
        begin_atom();
        out_ += char_class(0);
        return;
      case '(': open_group(); return;
      case ')': close_group(); return;
      case '*':
      case '+':
      case '?':
      case '{': quantifier(); return;
      case '|':
        ++at_;
        out_ += '|';
        has_atom_ = false;
        return;
      case '^':
      case '$':  // of lines, always
        ++at_;
        begin_atom();
        out_ += c;
        return;
      case '.':
        ++at_;
        begin_atom();
        out_ += c;
        return;
      default: break;
    }
    if (groups_.back().extended) {
      if (c == ' ' || (c >= '\t' && c <= '\r')) {
        ++at_;
        return;
      }
      if (c == '#') {
        while (at_ < in_.size() && in_[at_] != '\n') ++at_;
        return;
      }
    }
    literal(utf8_next(in_, at_));
  }

  void literal(char32_t c) {
    begin_atom();
    if (caseless()) {
      if (c == 0xDF || c == 0x1E9E) {  // sharp s is two letters long when case does not matter
        out_ += "(?:\\x{DF}|\\x{1E9E}|ss)";
        return;
      }
      if ((c == 's' || c == 'S') && at_ < in_.size() && (in_[at_] == 's' || in_[at_] == 'S') &&
          !quantified(at_ + 1)) {
        ++at_;
        out_ += "(?:ss|\\x{DF}|\\x{1E9E})";
        return;
      }
    }
    append_point(out_, c);
  }

  bool quantified(std::size_t at) const {
    return at < in_.size() && (in_[at] == '*' || in_[at] == '+' || in_[at] == '?' || in_[at] == '{');
  }

  // {n}, {n,}, {,m}, {n,m} at at_; nothing if the brace is a literal one.
  std::optional<std::string> interval(bool& is_fixed) {
    std::size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<unsigned> {
      std::size_t digits = 0;
      unsigned value = 0;
      for (; i < in_.size() && in_[i] >= '0' && in_[i] <= '9'; ++i, ++digits) {
        value = value * 10 + static_cast<unsigned>(in_[i] - '0');
        if (value > 65535) refuse("a repeat count above 65535");
      }
      if (digits == 0) return std::nullopt;
      return value;
    };
    const auto low = number();
    const bool comma = i < in_.size() && in_[i] == ',';
    if (comma) ++i;
    const auto high = comma ? number() : low;
    if (i >= in_.size() || in_[i] != '}' || (!low && !high)) return std::nullopt;
    if (low && high && *low > *high) refuse("an interval whose ends are exchanged");
    at_ = i + 1;
    is_fixed = !comma;
    if (!comma) return "{" + std::to_string(*low) + "}";
    return "{" + std::to_string(low.value_or(0)) + "," + (high ? std::to_string(*high) : std::string()) + "}";
  }

  void quantifier() {
    const char c = in_[at_];
    bool is_fixed = false;
    std::string text(1, c);
    if (c == '{') {
      const auto parsed = interval(is_fixed);
      if (!parsed) {
        literal(utf8_next(in_, at_));
        return;
      }
      text = *parsed;
    } else {
      ++at_;
    }
    if (!has_atom_) refuse("a quantifier without anything to repeat");
    if (quantified_) {  // a{2}{3}, a**: the inner one becomes a group
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    out_ += text;
    if (c == '{') {
      if (!is_fixed && accept("?")) out_ += '?';
    } else if (accept("?")) {
      out_ += '?';
    } else if (accept("+")) {
      out_ += '+';
    }
    // a{2}? repeats a{2} at most once, a{1,2}+ repeats a{1,2}: both are quantifiers of their own, met next.
    quantified_ = true;
    n_quantifiers_ += 1;
    if (n_quantifiers_ > 1000) refuse("more than 1000 quantifiers");
  }

  void open_group() {
    Group group = groups_.back();
    group.n_options_open = 0;
    ++at_;
    if (next_is("*")) refuse("a verb");
    if (!accept("?")) {
      n_captures_ += 1;
      push_group(group, "(");
      return;
    }
    for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"}) {
      if (accept(kind)) {
        push_group(group, "(?" + std::string(kind));
        return;
      }
    }
    if (accept("#")) {
      const std::size_t end = in_.find(')', at_);
      if (end == std::string_view::npos) refuse("a comment that is not closed");
      at_ = end + 1;
      return;
    }
    std::string options = "(?";
    bool on = true;
    bool caseless = groups_.back().caseless;
    bool extended = groups_.back().extended;
    for (;; ++at_) {
      if (at_ >= in_.size()) refuse("a group that is not closed");
      const char c = in_[at_];
      if (c == '-') {
        if (!on) refuse("an unknown group option");
        on = false;
        options += '-';
      } else if (c == 'i') {
        caseless = on;
        options += 'i';
      } else if (c == 'm') {  // the dot takes line ends
        options += 's';
      } else if (c == 'x') {  // white space is left out here already
        extended = on;
      } else if (c == ':' || c == ')') {
        break;
      } else {
        refuse("an unknown group option");
      }
    }
    const bool to_end_of_group = in_[at_] == ')';
    ++at_;
    if (options.back() == '-') options.pop_back();
    options += ':';
    if (to_end_of_group) {  // a(?i)b|c becomes a(?i:b|c): closed with its group
      groups_.back().caseless = caseless;
      groups_.back().extended = extended;
      groups_.back().n_options_open += 1;
      out_ += options;
      has_atom_ = false;
      n_open_ += 1;
      if (n_open_ > 200) refuse("more than 200 nested groups");
      return;
    }
    group.caseless = caseless;
    group.extended = extended;
    push_group(group, options);
  }

  void push_group(Group group, const std::string& text) {
    group.start = out_.size();
    groups_.push_back(group);
    out_ += text;
    has_atom_ = false;
    n_open_ += 1;
    if (n_open_ > 200) refuse("more than 200 nested groups");
  }

  void close_options(const Group& group) {
    out_.append(static_cast<std::size_t>(group.n_options_open), ')');
    n_open_ -= group.n_options_open;
  }

  void close_group() {
    if (groups_.size() == 1) refuse("a closing bracket without its group");
    ++at_;
    const Group group = groups_.back();
    close_options(group);
    groups_.pop_back();
    out_ += ')';
    n_open_ -= 1;
    atom_ = group.start;
    has_atom_ = true;
    quantified_ = false;
  }

  // The code point of an escape that stands for one character (after the backslash); nothing if it is another
  // kind.
  std::optional<char32_t> escaped_point(bool in_class) {
    const auto hex = [&](std::size_t at, std::size_t max_digits, std::size_t& n) {
      char32_t value = 0;
      for (n = 0; n < max_digits && at + n < in_.size(); ++n) {
        const char h = in_[at + n];
        const int digit = h >= '0' && h <= '9'   ? h - '0'
                          : h >= 'a' && h <= 'f' ? h - 'a' + 10
                          : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                                 : -1;
        if (digit < 0) break;
        value = value * 16 + static_cast<char32_t>(digit);
      }
      return value;
    };
    const auto scalar = [&](char32_t value) {
      if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) refuse("a code point that is none");
      return value;
    };
    const char c = in_[at_];
    std::size_t n = 0;
    switch (c) {
      case 't': ++at_; return 0x09;
      case 'n': ++at_; return 0x0A;
      case 'v': ++at_; return 0x0B;
      case 'f': ++at_; return 0x0C;
      case 'r': ++at_; return 0x0D;
      case 'a': ++at_; return 0x07;
      case 'e': ++at_; return 0x1B;
      case 'b':
        if (!in_class) return std::nullopt;
        ++at_;
        return 0x08;
      case 'x':
        if (at_ + 1 < in_.size() && in_[at_ + 1] == '{') {
          const char32_t value = hex(at_ + 2, 8, n);
          if (n == 0 || at_ + 2 + n >= in_.size() || in_[at_ + 2 + n] != '}') refuse("an unknown \\x escape");
          at_ += n + 3;
          return scalar(value);
        } else {
          const char32_t value = hex(at_ + 1, 2, n);
          if (n == 0 || value > 0x7F) refuse("an unknown \\x escape");
          at_ += n + 1;
          return value;
        }
      case 'u': {
        const char32_t value = hex(at_ + 1, 4, n);
        if (n != 4) refuse("an unknown \\u escape");
        at_ += 5;
        return scalar(value);
      }
      default: break;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter) return std::nullopt;
    return utf8_next(in_, at_);
  }

  void escape() {
    ++at_;
    if (at_ >= in_.size()) refuse("a backslash at the end");
    if (const auto point = escaped_point(false)) {
      literal(*point);
      return;
    }
    const char c = in_[at_++];
    begin_atom();
    const auto in_brackets = [](std::string_view body, bool negated) {
      return (negated ? "[^" : "[") + std::string(body) + "]";
    };
    switch (c) {
      case 'd':
      case 'D': out_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}"; return;
      case 's':
      case 'S': out_ += in_brackets(kSpaceClass, c == 'S'); return;
      case 'w':
      case 'W': out_ += in_brackets(kBareWordClass, c == 'W'); return;
      case 'h':
      case 'H': out_ += in_brackets(kHexClass, c == 'H'); return;
      case 'R': out_ += "\\R"; return;
      case 'X': refuse("\\X, whose clusters differ between versions of Unicode,");
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
        out_ += '\\';
        out_ += c;
        return;
      case 'b':
      case 'B': {
        const std::string word = in_brackets(kBareWordClass, false);
        out_ += c == 'b' ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
                         : "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
        return;
      }
      case 'p':
      case 'P': out_ += property(c == 'P'); return;
      default: break;
    }
    if (c >= '1' && c <= '9' && !(at_ < in_.size() && in_[at_] >= '0' && in_[at_] <= '9')) {
      max_back_reference_ = std::max(max_back_reference_, c - '0');
      out_ += "\\g{";
      out_ += c;
      out_ += '}';
      return;
    }
    refuse("an unknown escape");
  }

  struct NamedClass {
    std::string_view name;  // lower case, without spaces, - and _
    std::string_view body;  // of a PCRE2 class
  };

  // Names that are no script. Everything else is tried as one.
  static std::optional<std::string_view> named_class(std::string_view name) {
    static constexpr std::array kNames = std::to_array<NamedClass>({
        {"alnum", R"(\p{Alphabetic}\p{Nd})"},
        {"alpha", R"(\p{Alphabetic})"},
        {"blank", R"(\p{Zs}\x{09})"},
        {"cntrl", R"(\p{Cc})"},
        {"digit", R"(\p{Nd})"},
        {"lower", R"(\p{Lowercase})"},
        {"punct", R"(\p{P}\p{S})"},
        {"space", kSpaceClass},
        {"upper", R"(\p{Uppercase})"},
        {"xdigit", kHexClass},
        {"word", kWordClass},
        {"any", R"(\x{0}-\x{10FFFF})"},
        {"ascii", R"(\x{0}-\x{7F})"},
        {"letter", R"(\p{L})"},
        {"uppercaseletter", R"(\p{Lu})"},
        {"lowercaseletter", R"(\p{Ll})"},
        {"titlecaseletter", R"(\p{Lt})"},
        {"modifierletter", R"(\p{Lm})"},
        {"otherletter", R"(\p{Lo})"},
        {"mark", R"(\p{M})"},
        {"nonspacingmark", R"(\p{Mn})"},
        {"spacingmark", R"(\p{Mc})"},
        {"enclosingmark", R"(\p{Me})"},
        {"number", R"(\p{N})"},
        {"decimalnumber", R"(\p{Nd})"},
        {"letternumber", R"(\p{Nl})"},
        {"othernumber", R"(\p{No})"},
        {"punctuation", R"(\p{P})"},
        {"symbol", R"(\p{S})"},
        {"separator", R"(\p{Z})"},
        {"other", R"(\p{C})"},
        {"control", R"(\p{Cc})"},
        {"format", R"(\p{Cf})"},
        {"alphabetic", R"(\p{Alphabetic})"},
        {"lowercase", R"(\p{Lowercase})"},
        {"uppercase", R"(\p{Uppercase})"},
        {"whitespace", kSpaceClass},
        {"emoji", R"(\p{Emoji})"},
        {"emojipresentation", R"(\p{Emoji_Presentation})"},
        {"emojimodifier", R"(\p{Emoji_Modifier})"},
        {"emojimodifierbase", R"(\p{Emoji_Modifier_Base})"},
        {"extendedpictographic", R"(\p{Extended_Pictographic})"},
        {"ideographic", R"(\p{Ideographic})"},
        {"idstart", R"(\p{ID_Start})"},
        {"idcontinue", R"(\p{ID_Continue})"},
        {"xidstart", R"(\p{XID_Start})"},
        {"xidcontinue", R"(\p{XID_Continue})"},
        {"l", R"(\p{L})"},
        {"lu", R"(\p{Lu})"},
        {"ll", R"(\p{Ll})"},
        {"lt", R"(\p{Lt})"},
        {"lm", R"(\p{Lm})"},
        {"lo", R"(\p{Lo})"},
        {"m", R"(\p{M})"},
        {"mn", R"(\p{Mn})"},
        {"mc", R"(\p{Mc})"},
        {"me", R"(\p{Me})"},
        {"n", R"(\p{N})"},
        {"nd", R"(\p{Nd})"},
        {"nl", R"(\p{Nl})"},
        {"no", R"(\p{No})"},
        {"p", R"(\p{P})"},
        {"pc", R"(\p{Pc})"},
        {"pd", R"(\p{Pd})"},
        {"ps", R"(\p{Ps})"},
        {"pe", R"(\p{Pe})"},
        {"pi", R"(\p{Pi})"},
        {"pf", R"(\p{Pf})"},
        {"po", R"(\p{Po})"},
        {"s", R"(\p{S})"},
        {"sm", R"(\p{Sm})"},
        {"sc", R"(\p{Sc})"},
        {"sk", R"(\p{Sk})"},
        {"so", R"(\p{So})"},
        {"z", R"(\p{Z})"},
        {"zs", R"(\p{Zs})"},
        {"zl", R"(\p{Zl})"},
        {"zp", R"(\p{Zp})"},
        {"c", R"(\p{C})"},
        {"cc", R"(\p{Cc})"},
        {"cf", R"(\p{Cf})"},
        {"cn", R"(\p{Cn})"},
        {"co", R"(\p{Co})"},
        {"cs", R"(\p{Cs})"},
        {"lc", R"(\p{L&})"},
    });
    for (const NamedClass& entry : kNames) {
      if (entry.name == name) return entry.body;
    }
    return std::nullopt;
  }

  // {Name} or {^Name} at at_; the class as one PCRE2 atom.
  std::string property(bool negated) {
    if (!accept("{")) refuse("a property without braces");
    if (accept("^")) negated = !negated;
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos || end - at_ > 64) refuse("a property name that is not closed");
    std::string name;
    for (const char c : in_.substr(at_, end - at_)) {
      if (c == ' ' || c == '-' || c == '_') continue;
      if (c >= 'A' && c <= 'Z') {
        name += static_cast<char>(c - 'A' + 'a');
      } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
        name += c;
      } else {
        refuse("an unknown property");
      }
    }
    if (name.empty()) refuse("an unknown property");
    at_ = end + 1;
    if (const auto body = named_class(name)) {
      return (negated ? "[^" : "[") + std::string(*body) + "]";
    }
    return (negated ? "\\P{sc:" : "\\p{sc:") + name + "}";
  }

  // All after '[' up to its ']', as one PCRE2 atom that matches one character.
  std::string char_class(int depth) {
    if (depth > 32) refuse("more than 32 nested character classes");
    const bool negated = accept("^");
    std::optional<std::string> intersection;  // what stood before the last &&, as an atom
    ClassParts parts;
    bool is_first = true;
    for (;; is_first = false) {
      if (at_ >= in_.size()) refuse("a character class that is not closed");
      if (in_[at_] == ']' && !is_first) break;
      if (accept("&&")) {
        const std::string left = class_atom(parts, false);
        intersection = intersection ? "(?:(?=" + *intersection + ")" + left + ")" : left;
        parts = {};
        continue;
      }
      class_item(parts, depth);
    }
    ++at_;
    std::string result = class_atom(parts, negated && !intersection);
    if (intersection) {
      result = "(?:(?=" + *intersection + ")" + result + ")";
      if (negated) result = "(?:(?!" + result + ")(?s:.))";
    }
    if (result.size() > 4 * kMaxPatternBytes) refuse("too many nested character classes");
    return result;
  }

  static std::string class_atom(const ClassParts& parts, bool negated) {
    std::string any;
    if (parts.others.empty()) {
      if (parts.body.empty()) return negated ? "(?s:.)" : "(?!)";
      return (negated ? "[^" : "[") + parts.body + "]";
    }
    if (!parts.body.empty()) any = "[" + parts.body + "]";
    for (const std::string& other : parts.others) {
      if (!any.empty()) any += '|';
      any += other;
    }
    return negated ? "(?:(?!" + any + ")(?s:.))" : "(?:" + any + ")";
  }

  void class_item(ClassParts& parts, int depth) {
    if (next_is("[:")) {
      if (posix_class(parts)) return;
    }
    if (accept("[")) {
      const std::string inner = char_class(depth + 1);
      const bool is_plain =
          inner[0] == '[' && inner[1] != '^';  // one pair of brackets: code points are escaped
      if (is_plain) {
        parts.body.append(inner, 1, inner.size() - 2);
      } else {
        parts.others.push_back(inner);
      }
      return;
    }
    if (next_is("\\")) {
      ++at_;
      if (at_ >= in_.size()) refuse("a backslash at the end");
      const auto point = escaped_point(true);
      if (!point) {
        class_escape(parts);
        return;
      }
      class_range(parts, *point);
      return;
    }
    class_range(parts, utf8_next(in_, at_));
  }

  void class_range(ClassParts& parts, char32_t low) {
    if (caseless() && (low == 0xDF || low == 0x1E9E)) {
      refuse("a caseless class with a letter that folds to two");
    }
    append_point(parts.body, low);
    if (!next_is("-") || at_ + 1 >= in_.size() || in_[at_ + 1] == ']') return;
    if (in_.substr(at_ + 1, 2) == "&&" || in_[at_ + 1] == '[') return;
    const std::size_t minus = at_;
    ++at_;
    char32_t high = 0;
    if (accept("\\")) {
      if (at_ >= in_.size()) refuse("a backslash at the end");
      const auto point = escaped_point(true);
      if (!point) {  // a-\d: the minus is one
        at_ = minus + 1;
        append_point(parts.body, '-');
        return;
      }
      high = *point;
    } else {
      high = utf8_next(in_, at_);
    }
    if (high < low) refuse("a range whose ends are exchanged");
    parts.body += '-';
    append_point(parts.body, high);
  }

  void class_escape(ClassParts& parts) {
    const char c = in_[at_++];
    switch (c) {
      case 'd': parts.body += "\\p{Nd}"; return;
      case 'D': parts.body += "\\P{Nd}"; return;
      case 's': parts.body += kSpaceClass; return;
      case 'S': parts.others.push_back("[^" + std::string(kSpaceClass) + "]"); return;
      case 'w': parts.body += kWordClass; return;
      case 'W': parts.others.push_back("[^" + std::string(kWordClass) + "]"); return;
      case 'h': parts.body += kHexClass; return;
      case 'H': parts.others.push_back("[^" + std::string(kHexClass) + "]"); return;
      case 'p':
      case 'P': {
        const std::string atom = property(c == 'P');
        if (atom.front() == '\\') {
          parts.body += atom;
        } else if (atom[1] != '^') {
          parts.body.append(atom, 1, atom.size() - 2);
        } else {
          parts.others.push_back(atom);
        }
        return;
      }
      default: refuse("an unknown escape in a character class");
    }
  }

  bool posix_class(ClassParts& parts) {
    const std::size_t end = in_.find(":]", at_ + 2);
    if (end == std::string_view::npos || end - at_ > 20) return false;
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    const bool negated = !name.empty() && name.front() == '^';
    if (negated) name.remove_prefix(1);
    for (const char c : name) {
      if (c < 'a' || c > 'z') return false;
    }
    const auto body = named_class(name);
    if (!body || name.size() < 4) refuse("an unknown POSIX class");
    at_ = end + 2;
    if (negated) {
      parts.others.push_back("[^" + std::string(*body) + "]");
    } else {
      parts.body += *body;
    }
    return true;
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  std::size_t atom_ = 0;  // where the last atom begins in out_
  bool has_atom_ = false;
  bool quantified_ = false;
  int n_captures_ = 0;
  int max_back_reference_ = 0;
  int n_open_ = 0;
  int n_quantifiers_ = 0;
};

}  // namespace detail
}  // namespace kvdecode
