// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/scripts.hpp> - which script a character is of, tabulated from PCRE2's properties,
// since no library at hand answers that question directly.
#pragma once

#include <kvdecode/text/detail/regex.hpp>
#include <kvdecode/text/detail/unicode.hpp>
#include <kvdecode/text/detail/utf8.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The scripts that UnicodeScripts tells apart; Han stands for Hiragana and Katakana too.
constexpr auto kScripts = std::to_array<std::string_view>({
    "Adlam",
    "Ahom",
    "Anatolian_Hieroglyphs",
    "Arabic",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "Bassa_Vah",
    "Batak",
    "Bengali",
    "Bhaiksuki",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "Canadian_Aboriginal",
    "Carian",
    "Caucasian_Albanian",
    "Chakma",
    "Cham",
    "Cherokee",
    "Common",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Cyrillic",
    "Deseret",
    "Devanagari",
    "Duployan",
    "Egyptian_Hieroglyphs",
    "Elbasan",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Grantha",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hanunoo",
    "Hatran",
    "Hebrew",
    "Hiragana",
    "Imperial_Aramaic",
    "Inherited",
    "Inscriptional_Pahlavi",
    "Inscriptional_Parthian",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Katakana",
    "Kayah_Li",
    "Kharoshthi",
    "Khmer",
    "Khojki",
    "Khudawadi",
    "Lao",
    "Latin",
    "Lepcha",
    "Limbu",
    "Linear_A",
    "Linear_B",
    "Lisu",
    "Lycian",
    "Lydian",
    "Mahajani",
    "Malayalam",
    "Mandaic",
    "Manichaean",
    "Marchen",
    "Meetei_Mayek",
    "Mende_Kikakui",
    "Meroitic_Cursive",
    "Meroitic_Hieroglyphs",
    "Miao",
    "Modi",
    "Mongolian",
    "Mro",
    "Multani",
    "Myanmar",
    "Nabataean",
    "New_Tai_Lue",
    "Newa",
    "Nko",
    "Ogham",
    "Ol_Chiki",
    "Old_Hungarian",
    "Old_Italic",
    "Old_North_Arabian",
    "Old_Permic",
    "Old_Persian",
    "Old_South_Arabian",
    "Old_Turkic",
    "Oriya",
    "Osage",
    "Osmanya",
    "Pahawh_Hmong",
    "Palmyrene",
    "Pau_Cin_Hau",
    "Phags_Pa",
    "Phoenician",
    "Psalter_Pahlavi",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Sharada",
    "Shavian",
    "Siddham",
    "SignWriting",
    "Sinhala",
    "Sora_Sompeng",
    "Sundanese",
    "Syloti_Nagri",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "Tai_Le",
    "Tai_Tham",
    "Tai_Viet",
    "Takri",
    "Tamil",
    "Tangut",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
    "Tifinagh",
    "Tirhuta",
    "Ugaritic",
    "Vai",
    "Warang_Citi",
    "Yi",
});

/// Scripts by code point. Building it takes some ten milliseconds; it is made only for UnicodeScripts.
class ScriptTable {
 public:
  static constexpr int kAny = -1;  // spaces, and characters of no script in the list

  ScriptTable() {
    std::string text;  // all characters that are assigned
    for (char32_t c = 0; c <= 0x10FFFF; ++c) {
      const utf8proc_category_t k = category(c);
      const bool has_script =
          k != UTF8PROC_CATEGORY_CN && k != UTF8PROC_CATEGORY_CO && k != UTF8PROC_CATEGORY_CS;
      if (has_script) utf8_append(text, c);
    }
    std::string any_run;
    std::vector<Regex> members;
    members.reserve(kScripts.size());
    for (const std::string_view script : kScripts) {
      const std::string member = "\\p{sc:" + std::string(script) + "}";
      any_run += (any_run.empty() ? "" : "|") + member + "+";
      members.emplace_back(member, Regex::Syntax::kPcre2);
    }
    RegexScratch scratch;
    Regex(any_run, Regex::Syntax::kPcre2)
        .for_each_match(text, scratch, [&](std::size_t begin, std::size_t end) {
          const std::string_view first = std::string_view(text).substr(begin, utf8_length(text[begin]));
          int script = 0;
          while (!members[static_cast<std::size_t>(script)].matches(first, scratch)) ++script;
          for (std::size_t i = begin; i < end;) add(utf8_next(text, i), script);
        });
  }

  int find(char32_t c) const {
    if (c == ' ') return kAny;
    if (c == 0x30FC) return han();
    const auto range = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                        [](char32_t point, const Range& r) { return point < r.first; });
    if (range == ranges_.begin() || c > (range - 1)->last) return kAny;
    const int script = (range - 1)->script;
    const std::string_view name = kScripts[static_cast<std::size_t>(script)];
    return name == "Hiragana" || name == "Katakana" ? han() : script;
  }

 private:
  struct Range {
    char32_t first;
    char32_t last;
    int script;
  };

  static constexpr int han() {
    return static_cast<int>(std::find(kScripts.begin(), kScripts.end(), "Han") - kScripts.begin());
  }

  void add(char32_t c, int script) {
    if (!ranges_.empty() && ranges_.back().script == script && ranges_.back().last + 1 == c) {
      ranges_.back().last = c;
    } else {
      ranges_.push_back({c, c, script});
    }
  }

  std::vector<Range> ranges_;  // in rising order
};

}  // namespace detail
}  // namespace kvdecode
