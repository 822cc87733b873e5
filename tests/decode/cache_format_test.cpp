// SPDX-License-Identifier: MIT
// decode/cache_format.hpp.
#include <kvdecode/decode/cache_format.hpp>

#include <doctest/doctest.h>

#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

namespace {

using kvdecode::CacheFormat;

TEST_CASE("cache format: every one has a name of its own, and is found by it") {
  std::set<std::string_view> names;
  for (const CacheFormat format : kvdecode::kCacheFormats) {
    names.insert(to_string(format));
    CHECK(kvdecode::cache_format_of(to_string(format)) == format);
  }
  CHECK(names.size() == std::size(kvdecode::kCacheFormats));
  CHECK(static_cast<std::size_t>(CacheFormat::kTurbo2) + 1 == std::size(kvdecode::kCacheFormats));
  for (const char* name : {"", "?", "int5", "int8/", "had_int4/int8", "Int8"})
    CHECK(!kvdecode::cache_format_of(name));
}

TEST_CASE("cache format: a name is that of the types it stands for, keys first") {
  for (const CacheFormat format : kvdecode::kCacheFormats) {
    const auto names = [&]<class S>(S) {
      return kvdecode::visit_cache_format<S>(format, []<class K, class V>() {
        const bool is_native = std::is_same_v<K, kvdecode::Native<S>> && std::is_same_v<V, K>;
        const std::string keys(K::kName), values(V::kName);
        return is_native ? "native" : keys == values ? keys : keys + "/" + values;
      });
    };
    CHECK(names(0.0f) == to_string(format));
    CHECK(names(0.0) == to_string(format));
  }
}

}  // namespace
