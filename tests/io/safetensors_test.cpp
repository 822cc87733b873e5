// SPDX-License-Identifier: MIT
#include <kvdecode/io/safetensors.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using io_test::HeapBytes;
using io_test::raw_safetensors;
using kvdecode::ErrorCode;
using kvdecode::Index;
using kvdecode::SafetensorsDtype;
using kvdecode::SafetensorsFile;
using kvdecode::SafetensorsTensor;

namespace {

SafetensorsFile open(std::string_view file) {
  const HeapBytes heap(file);
  return SafetensorsFile(heap.bytes, heap.owner, "test.safetensors");
}

/// A file with one tensor of this record and that much data.
std::string with_record(std::string_view record, std::size_t n_data) {
  return raw_safetensors("{\"t\":" + std::string(record) + "}", std::string(n_data, 'd'));
}

const std::string kSmall = raw_safetensors(
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2,3],"data_offsets":[8,14]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"shape":[0,4],"data_offsets":[8,8],"dtype":"F64"}}  )",
    std::string("\0\0\x80\x3f\0\0\0\xc0uvwxyz", 14));

}  // namespace

TEST_CASE("SafetensorsFile: tensors by name, with type, shape and bytes where they lie") {
  const HeapBytes heap(kSmall);
  const SafetensorsFile file(heap.bytes, heap.owner, "test.safetensors");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[1].name == "b");
  CHECK(file.tensors()[2].name == "e");
  const SafetensorsTensor& a = file.tensor("a");
  CHECK(a.dtype == SafetensorsDtype::kF32);
  CHECK(a.shape == std::vector<Index>{2});
  CHECK(a.bytes.data() == heap.bytes.data() + heap.bytes.size() - 14);
  CHECK(kvdecode::values_of<float>(a) == std::vector<float>{1.0f, -2.0f});
  const SafetensorsTensor& b = file.tensor("b");
  CHECK(b.shape == std::vector<Index>{2, 3});
  CHECK(kvdecode::values_of<std::uint8_t>(b) == std::vector<std::uint8_t>{'u', 'v', 'w', 'x', 'y', 'z'});
  CHECK(file.tensor("e").bytes.empty());
  CHECK(kvdecode::values_of<double>(file.tensor("e")).empty());
  CHECK(file.find("c") == nullptr);
  CHECK(file.find("") == nullptr);
  REQUIRE(file.metadata().size() == 1);
  CHECK(file.metadata()[0] == std::pair<std::string, std::string>("format", "pt"));
  check_error(ErrorCode::kMismatch, {"test.safetensors", "no tensor \"c\""}, [&] { file.tensor("c"); });
  check_error(ErrorCode::kMismatch, {"\"a\"", "F32", "I64"}, [&] { kvdecode::values_of<std::int64_t>(a); });
}

TEST_CASE("SafetensorsFile: the owner lives as long as a copy of the handle") {
  auto heap = std::make_unique<HeapBytes>(kSmall);
  const std::weak_ptr<std::byte> watch = heap->owner;
  auto file = std::make_unique<SafetensorsFile>(heap->bytes, heap->owner, "test.safetensors");
  heap.reset();
  const SafetensorsFile copy = *file;
  file.reset();
  CHECK(!watch.expired());
  CHECK(kvdecode::values_of<float>(copy.tensor("a"))[1] == -2.0f);
}

TEST_CASE("SafetensorsFile: reads the reference's own files") {
  const SafetensorsFile file(std::filesystem::path(KVDECODE_TEST_DATA_DIR) /
                             "golden/llama-mha/expected.safetensors");
  CHECK(file.tensors().size() == 6);
  CHECK(file.tensor("logits_1").shape == std::vector<Index>{37, 80});
  CHECK(kvdecode::values_of<float>(file.tensor("logits_1")).size() == 37 * 80);
  const std::vector<std::int64_t> tokens = kvdecode::values_of<std::int64_t>(file.tensor("tokens_1"));
  const std::vector<std::int64_t> greedy = kvdecode::values_of<std::int64_t>(file.tensor("greedy_1"));
  REQUIRE(tokens.size() == 37);
  REQUIRE(greedy.size() == 49);
  CHECK(std::equal(tokens.begin(), tokens.end(), greedy.begin()));
}

TEST_CASE("SafetensorsFile: a file without tensors, and one with a single number, are files") {
  CHECK(open(raw_safetensors("{}", "")).tensors().empty());
  CHECK(open(raw_safetensors("{\"__metadata__\":{}}", "")).metadata().empty());
  const SafetensorsFile file = open(with_record(R"({"dtype":"F64","shape":[],"data_offsets":[0,8]})", 8));
  CHECK(file.tensor("t").shape.empty());
  CHECK(open(with_record(R"({"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]})", 3)).tensors().size() ==
        1);
}

TEST_CASE("SafetensorsFile, hostile: every cut and every extension of a file is an Error") {
  CHECK_NOTHROW(open(kSmall));
  for (std::size_t n = 0; n < kSmall.size(); ++n) {
    CAPTURE(n);
    check_error(ErrorCode::kBadFile, {"test.safetensors: "},
                [&] { open(std::string_view(kSmall).substr(0, n)); });
  }
  check_error(ErrorCode::kBadFile, {"end at byte 14 of the data, which has 15"}, [] { open(kSmall + "x"); });
}

TEST_CASE("SafetensorsFile, hostile: no change of a byte leads out of the file") {
  std::mt19937 random(1);
  int n_accepted = 0, n_refused = 0;
  const auto try_file = [&](const std::string& text) {
    const HeapBytes heap(text);
    const auto error = io_test::error_of([&] {
      const SafetensorsFile file(heap.bytes, heap.owner, "test.safetensors");
      std::size_t n_bytes = 0;
      for (const SafetensorsTensor& tensor : file.tensors())
        for (const std::byte byte : tensor.bytes) n_bytes += byte == std::byte{0} ? 1 : 1;
      CHECK(n_bytes == 14);
      ++n_accepted;
    });
    if (error) {
      CHECK(error->code() == ErrorCode::kBadFile);
      ++n_refused;
    }
  };
  for (std::size_t i = 0; i < kSmall.size(); ++i) {
    for (const char c :
         {'\0', '\x01', '0', '9', '-', '.', '"', '{', '[', ']', '}', ',', ' ', '\x7f', '\xff'}) {
      std::string text = kSmall;
      text[i] = c;
      try_file(text);
    }
  }
  for (int round = 0; round < 3000; ++round) {
    std::string text = kSmall;
    for (int change = 0; change < 3; ++change) text[random() % text.size()] = text[random() % text.size()];
    try_file(text);
  }
  CHECK(n_accepted > 0);
  CHECK(n_refused > 1000);
}

TEST_CASE("SafetensorsFile, hostile: the header's length is not believed") {
  const std::string header = "{}";
  for (const std::uint64_t n : std::vector<std::uint64_t>{
           3, 100, 99'999'999, 100'000'001, std::uint64_t{1} << 32, std::uint64_t{1} << 63,
           std::numeric_limits<std::uint64_t>::max() - 7, std::numeric_limits<std::uint64_t>::max()}) {
    CAPTURE(n);
    check_error(ErrorCode::kBadFile, {"a header of " + std::to_string(n)},
                [&] { open(raw_safetensors(header, "", n)); });
  }
  check_error(ErrorCode::kBadFile, {"does not begin with {"}, [&] { open(raw_safetensors(header, "", 0)); });
  check_error(ErrorCode::kBadFile, {"too few"}, [] { open("1234567"); });
}

TEST_CASE("SafetensorsFile, hostile: headers that are not an object of tensors") {
  struct Case {
    std::string_view header;
    std::string_view word;
  };
  const Case cases[] = {
      {"[]", "does not begin with {"},
      {" {}", "does not begin with {"},
      {"\xef\xbb\xbf{}", "does not begin with {"},
      {"{}}", "not JSON"},
      {"{} {}", "not JSON"},
      {"{", "not JSON"},
      {R"({"t":1})", "\"t\" must be an object, got a number"},
      {R"({"t":null})", "\"t\" must be an object, got null"},
      {R"({"t":"x"})", "\"t\" must be an object, got a string"},
      {R"({"t":[]})", "tensor"},
      {R"({"__metadata__":[]})", "__metadata__"},
      {R"({"__metadata__":null})", "__metadata__"},
      {R"({"__metadata__":{"a":1}})", "must hold strings only"},
      {R"({"__metadata__":{"a":{}}})", "must hold strings only"},
      {R"({"__metadata__":{"a":["x"]}})", "must hold strings only"},
      {R"({"__metadata__":{"a":null}})", "must hold strings only"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", "\"a\" stands twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "twice"},
      {R"({"t":{}})", "needs dtype, shape and data_offsets"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.header);
    check_error(ErrorCode::kBadFile, {"test.safetensors: ", c.word},
                [&] { open(raw_safetensors(c.header, "")); });
  }
  check_error(ErrorCode::kBadFile, {"zero byte"},
              [] { open(raw_safetensors(std::string_view("{}\0\0\0\0\0\0", 8), "")); });
}

TEST_CASE("SafetensorsFile, hostile: records that are not { dtype, shape, data_offsets }") {
  struct Case {
    std::string_view record;
    std::string_view word;
  };
  const Case cases[] = {
      {R"({"dtype":"F32","shape":[2]})", "needs dtype"},
      {R"({"dtype":"F32","data_offsets":[0,8]})", "needs dtype"},
      {R"({"shape":[2],"data_offsets":[0,8]})", "needs dtype"},
      {R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", "\"dtype\" stands twice"},
      {R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})", "\"shape\" stands twice"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8]})", "stands twice"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]})", "unknown key \"strides\""},
      {R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})", "unknown dtype \"F33\""},
      {R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})", "unknown dtype"},
      {R"({"dtype":5,"shape":[2],"data_offsets":[0,8]})", "has no place there"},
      {R"({"dtype":["F32"],"shape":[2],"data_offsets":[0,8]})", "a list"},
      {R"({"dtype":null,"shape":[2],"data_offsets":[0,8]})", "null"},
      {R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", "has no place there"},
      {R"({"dtype":"F32","shape":"2","data_offsets":[0,8]})", "has no place there"},
      {R"({"dtype":"F32","shape":{},"data_offsets":[0,8]})", "an object"},
      {R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})", "got a list"},
      {R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})", "got a string"},
      {R"({"dtype":"F32","shape":[true],"data_offsets":[0,8]})", "got true or false"},
      {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "not a whole one"},
      {R"({"dtype":"F32","shape":[2e0],"data_offsets":[0,8]})", "not a whole one"},
      {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "negative"},
      {R"({"dtype":"F32","shape":[-2,-1],"data_offsets":[0,8]})", "negative"},
      {R"({"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]})", "not a whole one"},
      {R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})", "beyond 63 bits"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "must be two numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[]})", "must be two numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "more than two"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8.0]})", "not a whole one"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[-0,8]})", "negative"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", "negative"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":["0","8"]})", "got a string"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":8})", "has no place there"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})", "do not lie within the 8 bytes"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "do not lie within"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775807]})", "do not lie within"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775807]})",
       "do not lie within"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", "make 12 bytes, data_offsets 8"},
      {R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})", "make 16 bytes"},
      {R"({"dtype":"F32","shape":[],"data_offsets":[0,8]})", "make 4 bytes"},
      {R"({"dtype":"F32","shape":[0],"data_offsets":[0,8]})", "make 0 bytes"},
      {R"({"dtype":"F4","shape":[15],"data_offsets":[0,8]})", "whole number of bytes"},
      {R"({"dtype":"F32","shape":[4611686018427387904,4,1],"data_offsets":[0,8]})", "whole number of bytes"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})", "whole number of bytes"},
      {R"({"dtype":"F32","shape":[4294967296,4294967298],"data_offsets":[0,8]})", "whole number of bytes"},
      {R"({"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]})", "whole number of bytes"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,8]})", "whole number of bytes"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.record);
    check_error(ErrorCode::kBadFile, {"test.safetensors: ", "tensor \"t\"", c.word},
                [&] { open(with_record(c.record, 8)); });
  }
}

TEST_CASE("SafetensorsFile, hostile: tensors that overlap, leave holes or stand twice") {
  const auto two = [](std::string_view offsets_a, std::string_view offsets_b, std::size_t n_data,
                      std::string_view names = "ab") {
    const auto record = [&](char name, std::string_view offsets) {
      return std::string("\"") + name + R"(":{"dtype":"U8","shape":[4],"data_offsets":[)" +
             std::string(offsets) + "]}";
    };
    return raw_safetensors("{" + record(names[0], offsets_a) + "," + record(names[1], offsets_b) + "}",
                           std::string(n_data, 'd'));
  };
  CHECK_NOTHROW(open(two("0,4", "4,8", 8)));
  CHECK_NOTHROW(open(two("4,8", "0,4", 8)));
  check_error(ErrorCode::kBadFile, {"within the tensor before it"}, [&] { open(two("0,4", "0,4", 4)); });
  check_error(ErrorCode::kBadFile, {"\"b\"", "begin at 3", "within the tensor before it", "ends at 4"},
              [&] { open(two("0,4", "3,7", 7)); });
  check_error(ErrorCode::kBadFile, {"\"b\"", "begin at 5", "after a hole", "ends at 4"},
              [&] { open(two("0,4", "5,9", 9)); });
  check_error(ErrorCode::kBadFile, {"\"a\"", "begin at 1", "after a hole"},
              [&] { open(two("1,5", "5,9", 9)); });
  check_error(ErrorCode::kBadFile, {"end at byte 8", "which has 9"}, [&] { open(two("0,4", "4,8", 9)); });
  check_error(ErrorCode::kBadFile, {"do not lie within the 7 bytes"}, [&] { open(two("0,4", "4,8", 7)); });
  check_error(ErrorCode::kBadFile, {"\"a\" stands twice"}, [&] { open(two("0,4", "4,8", 8, "aa")); });
  check_error(ErrorCode::kBadFile, {"\"a\" stands twice"}, [] {
    open(raw_safetensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                         R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                         ""));
  });
}

TEST_CASE("SafetensorsFile, hostile: deep JSON ends at the first level that has no meaning") {
  std::string deep;
  for (int i = 0; i < 1000000; ++i) deep += "{\"t\":";
  check_error(ErrorCode::kBadFile, {"at byte 17", "unknown key \"t\""},
              [&] { open(raw_safetensors(deep, "")); });
  check_error(ErrorCode::kBadFile, {"a list"},
              [] { open(raw_safetensors("{\"t\":{\"shape\":" + std::string(1000000, '['), "")); });
}

TEST_CASE("SafetensorsFile, hostile: a shape has at most 64 extents") {
  const auto of_rank = [](int rank) {
    std::string shape = "8";
    for (int i = 1; i < rank; ++i) shape += ",1";
    return with_record("{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,8]}", 8);
  };
  CHECK(open(of_rank(64)).tensor("t").shape.size() == 64);
  check_error(ErrorCode::kBadFile, {"tensor \"t\"", "more than 64 extents"}, [&] { open(of_rank(65)); });
}

TEST_CASE("SafetensorsFile, hostile: errors stay short and printable, whatever the names") {
  const std::string name(100000, 'n');
  for (const std::string& header :
       {"{\"" + name + "\":1}", "{\"t\":{\"dtype\":\"" + name + "\"}}", "{\"t\":{\"" + name + "\":1}}",
        "{\"\\u0000\\n\\u001b" + name + "\":{}}"}) {
    const auto error = io_test::error_of([&] { open(raw_safetensors(header, "")); });
    REQUIRE(error.has_value());
    const std::string_view text = error->what();
    CHECK(text.size() < 400);
    for (const char c : text) CHECK((c >= ' ' && c <= '~'));
  }
}

TEST_CASE("SafetensorsFile: a header of many tensors takes time and memory in proportion") {
  std::string header = "{";
  constexpr int kTensors = 20000;
  for (int i = 0; i < kTensors; ++i)
    header +=
        (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  CHECK(open(raw_safetensors(header + "}", "")).tensors().size() == kTensors);
}
