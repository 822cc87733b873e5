// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/calendar.hpp> - strftime with the names of the C locale, whatever the host's. The time
// comes from the caller: nothing here reads a clock.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/meter.hpp>

#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

constexpr std::string_view kDayNames[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                          "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonthNames[] = {"January",   "February", "March",    "April",
                                            "May",       "June",     "July",     "August",
                                            "September", "October",  "November", "December"};

/// A point in time as a calendar shows it.
class CalendarTime {
 public:
  /// The week day and the day of the year follow from the date; tm_wday and tm_yday are not read.
  explicit CalendarTime(const std::tm& time)
      : year_(time.tm_year + 1900),
        month_(time.tm_mon),
        day_(time.tm_mday),
        hour_(time.tm_hour),
        minute_(time.tm_min),
        second_(time.tm_sec) {
    const bool fits = year_ >= 1 && year_ <= 9999 && month_ >= 0 && month_ <= 11 && day_ >= 1 && day_ <= 31 &&
                      hour_ >= 0 && hour_ <= 23 && minute_ >= 0 && minute_ <= 59 && second_ >= 0 &&
                      second_ <= 60;
    if (!fits)
      kvdecode::detail::raise(ErrorCode::kBadArgument, "chat template: the clock's time is not a date");
    constexpr int kDaysBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    const bool is_leap = (year_ % 4 == 0 && year_ % 100 != 0) || year_ % 400 == 0;
    day_of_year_ = kDaysBefore[month_] + day_ + (month_ > 1 && is_leap ? 1 : 0);
    const int before = year_ - 1;
    day_of_week_ = (before * 365 + before / 4 - before / 100 + before / 400 + day_of_year_) % 7;
  }

  void format(TextBuilder& out, std::string_view format) const {
    for (std::size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out.append(1, format[i]);
        continue;
      }
      ++i;
      char padding = 0;  // as the field has it
      if ((format[i] == '-' || format[i] == '_' || format[i] == '0') && i + 1 < format.size())
        padding = format[i++];
      if (format[i] == '%') {
        out.append("%");
      } else {
        field(out, format[i], padding);
      }
    }
  }

 private:
  static void number(TextBuilder& out, int value, std::size_t width, char usual, char padding) {
    const std::string digits = std::to_string(value);
    const char fill = padding == '_' ? ' ' : padding == '0' ? '0' : usual;
    if (padding != '-' && digits.size() < width) out.append(width - digits.size(), fill);
    out.append(digits);
  }

  void field(TextBuilder& out, char name, char padding) const {
    const int hour12 = hour_ % 12 == 0 ? 12 : hour_ % 12;
    const std::string_view day_name = kDayNames[day_of_week_];
    const std::string_view month_name = kMonthNames[month_];
    switch (name) {
      case 'Y': return number(out, year_, 1, '0', padding);
      case 'C': return number(out, year_ / 100, 2, '0', padding);
      case 'y': return number(out, year_ % 100, 2, '0', padding);
      case 'm': return number(out, month_ + 1, 2, '0', padding);
      case 'd': return number(out, day_, 2, '0', padding);
      case 'e': return number(out, day_, 2, ' ', padding);
      case 'H': return number(out, hour_, 2, '0', padding);
      case 'I': return number(out, hour12, 2, '0', padding);
      case 'k': return number(out, hour_, 2, ' ', padding);
      case 'l': return number(out, hour12, 2, ' ', padding);
      case 'M': return number(out, minute_, 2, '0', padding);
      case 'S': return number(out, second_, 2, '0', padding);
      case 'f': return out.append("000000");
      case 'j': return number(out, day_of_year_, 3, '0', padding);
      case 'u': return number(out, day_of_week_ == 0 ? 7 : day_of_week_, 1, '0', padding);
      case 'w': return number(out, day_of_week_, 1, '0', padding);
      case 'U': return number(out, (day_of_year_ + 6 - day_of_week_) / 7, 2, '0', padding);
      case 'W': return number(out, (day_of_year_ + 6 - (day_of_week_ + 6) % 7) / 7, 2, '0', padding);
      case 'A': return out.append(day_name);
      case 'a': return out.append(day_name.substr(0, 3));
      case 'B': return out.append(month_name);
      case 'b':
      case 'h': return out.append(month_name.substr(0, 3));
      case 'p': return out.append(hour_ < 12 ? "AM" : "PM");
      case 'P': return out.append(hour_ < 12 ? "am" : "pm");
      case 'n': return out.append("\n");
      case 't': return out.append("\t");
      case 'z':
      case 'Z': return;  // a time without a zone
      case 'F': return format(out, "%Y-%m-%d");
      case 'D':
      case 'x': return format(out, "%m/%d/%y");
      case 'T':
      case 'X': return format(out, "%H:%M:%S");
      case 'R': return format(out, "%H:%M");
      case 'r': return format(out, "%I:%M:%S %p");
      case 'c': return format(out, "%a %b %e %H:%M:%S %Y");
      default:
        kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: strftime_now with %",
                                std::string(1, name));
    }
  }

  int year_;
  int month_;  // from 0
  int day_;
  int hour_;
  int minute_;
  int second_;
  int day_of_year_ = 1;  // from 1
  int day_of_week_ = 0;  // from Sunday
};

}  // namespace jinja
}  // namespace kvdecode
