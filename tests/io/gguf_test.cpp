// SPDX-License-Identifier: MIT
// io/gguf.hpp, io/gguf_metadata.hpp and io/gguf_type.hpp.
#include <kvdecode/io/gguf.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gguf_support.hpp"
#include "support.hpp"

using io_test::check_error;
using io_test::GgufWriter;
using io_test::HeapBytes;
using io_test::TemporaryFolder;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::GgufFile;
using kvdecode::GgufMetadata;
using kvdecode::GgufTensor;
using kvdecode::GgufValueType;
using kvdecode::Index;

namespace {

const std::filesystem::path kHostile = std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "gguf/hostile";

GgufFile open(std::string_view file) {
  const HeapBytes heap(file);
  return GgufFile(heap.bytes, heap.owner, "test.gguf");
}

std::string valid() { return io_test::read_text(kHostile / "valid.gguf"); }

std::vector<Index> shape_of(const GgufTensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

/// Reads everything that a file says, so that a sanitizer sees a view that leads out of it.
std::uint64_t read_all(const GgufFile& file) {
  std::uint64_t sum = 0;
  const auto add = [&](std::string_view text) {
    for (const char c : text) sum += static_cast<unsigned char>(c);
  };
  for (const auto& [key, value] : file.metadata().entries()) {
    add(key);
    add(kvdecode::detail::described(value));
    if (!value.is_array || value.type == GgufValueType::kBool) continue;
    if (value.type == GgufValueType::kString) {
      const auto texts = file.metadata().as_strings(key);
      for (const std::string_view text : *texts) add(text);
    } else {
      const auto numbers = file.metadata().as_numbers(key);
      for (const double x : *numbers) sum += x > 0.0 ? 1 : 0;
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    add(tensor.name);
    for (const std::byte b : tensor.bytes) sum += std::to_integer<unsigned>(b);
  }
  return sum;
}

}  // namespace

TEST_CASE("GgufFile: metadata by key, as the type that was asked for") {
  GgufWriter writer;
  writer.value("a.string", std::string_view("text"));
  writer.value("a.empty", std::string_view(""));
  writer.value("u8", std::uint8_t{200});
  writer.value("i8", std::int8_t{-3});
  writer.value("u16", std::uint16_t{65535});
  writer.value("i16", std::int16_t{-300});
  writer.value("u32", std::uint32_t{4000000000u});
  writer.value("i32", std::int32_t{-7});
  writer.value("u64", std::uint64_t{1} << 63);
  writer.value("i64", -(std::int64_t{1} << 40));
  writer.value("f32", 0.5f);
  writer.value("f64", 0.1);
  writer.value("yes", true);
  writer.value("no", false);
  writer.array("strings", std::vector<std::string_view>{"one", "", "three"});
  writer.array("floats", std::vector<float>{1.5f, -2.0f});
  writer.array("integers", std::vector<std::int32_t>{1, -2, 3});
  writer.array("none", std::vector<std::uint64_t>{});
  writer.array("booleans", std::vector<bool>{true, false, true});
  const GgufFile file = open(writer.bytes());
  const GgufMetadata& m = file.metadata();
  CHECK(file.version() == 3);
  CHECK(m.entries().size() == 19);
  CHECK(std::is_sorted(m.entries().begin(), m.entries().end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; }));
  CHECK(m.as_string("a.string") == "text");
  CHECK(m.as_string("a.empty") == "");
  CHECK(m.as_integer("u8") == 200);
  CHECK(m.as_integer("i8") == -3);
  CHECK(m.as_integer("u16") == 65535);
  CHECK(m.as_integer("i16") == -300);
  CHECK(m.as_integer("u32") == 4000000000);
  CHECK(m.as_integer("i32") == -7);
  CHECK(m.as_integer("i64") == -(std::int64_t{1} << 40));
  CHECK(m.as_number("f32") == 0.5);
  CHECK(m.as_number("f64") == 0.1);
  CHECK(m.as_number("i32") == -7.0);
  CHECK(m.as_boolean("yes") == true);
  CHECK(m.as_boolean("no") == false);
  CHECK(m.as_strings("strings") == std::vector<std::string_view>{"one", "", "three"});
  CHECK(m.as_numbers("floats") == std::vector<double>{1.5, -2.0});
  CHECK(m.as_numbers("integers") == std::vector<double>{1.0, -2.0, 3.0});
  CHECK(m.as_integers("integers") == std::vector<std::int64_t>{1, -2, 3});
  CHECK(m.as_integers("none") == std::vector<std::int64_t>{});
  CHECK(m.as_booleans("booleans") == std::vector<bool>{true, false, true});
  CHECK(m.contains("yes"));
  CHECK(!m.contains("ye"));
  CHECK(!m.as_string("absent"));
  CHECK(!m.as_integer("absent"));
  CHECK(!m.as_number("absent"));
  CHECK(!m.as_boolean("absent"));
  CHECK(!m.as_strings("absent"));
  CHECK(!m.as_integers("absent"));
  CHECK(!m.as_numbers("absent"));
  CHECK(!m.as_booleans("absent"));
  check_error(ErrorCode::kBadFile, {"test.gguf: u8 must be a string, got 200"}, [&] { m.as_string("u8"); });
  check_error(ErrorCode::kBadFile, {"a.string must be an integer, got \"text\""},
              [&] { m.as_integer("a.string"); });
  check_error(ErrorCode::kBadFile, {"f32 must be an integer, got 0.5"}, [&] { m.as_integer("f32"); });
  check_error(ErrorCode::kBadFile, {"yes must be an integer, got true"}, [&] { m.as_integer("yes"); });
  check_error(ErrorCode::kBadFile, {"u64 must be an integer, got 9223372036854775808"},
              [&] { m.as_integer("u64"); });
  check_error(ErrorCode::kBadFile, {"yes must be a number"}, [&] { m.as_number("yes"); });
  check_error(ErrorCode::kBadFile, {"u8 must be true or false"}, [&] { m.as_boolean("u8"); });
  check_error(ErrorCode::kBadFile, {"strings must be a string, got an array of 3 of type string"},
              [&] { m.as_string("strings"); });
  check_error(ErrorCode::kBadFile, {"integers must be an integer, got an array of 3 of type int32"},
              [&] { m.as_integer("integers"); });
  check_error(ErrorCode::kBadFile, {"floats must be an array of integers"}, [&] { m.as_integers("floats"); });
  check_error(ErrorCode::kBadFile, {"floats must be an array of strings"}, [&] { m.as_strings("floats"); });
  check_error(ErrorCode::kBadFile, {"u8 must be an array of numbers"}, [&] { m.as_numbers("u8"); });
  check_error(ErrorCode::kBadFile, {"strings must be an array of numbers"}, [&] { m.as_numbers("strings"); });
  check_error(ErrorCode::kBadFile, {"integers must be an array of booleans"},
              [&] { m.as_booleans("integers"); });
  check_error(ErrorCode::kBadFile, {"booleans must be an array of integers"},
              [&] { m.as_integers("booleans"); });
}

TEST_CASE("GgufFile: tensors by name, outermost extent first, where they lie") {
  GgufWriter writer;
  writer.tensor("w", {3, 64}, 2, std::string(3 * 36, 'w'));  // Q4_0: 64 numbers are 36 bytes
  writer.tensor("b", {3}, 0, std::string(12, 'b'));
  writer.tensor("experts", {2, 2, 32}, 8, std::string(4 * 34, 'e'));
  writer.tensor("scalar", {}, 0, std::string(4, 's'));
  writer.tensor("empty", {0, 5}, 0, "");
  const std::string bytes = writer.bytes();
  const HeapBytes heap(bytes);
  const GgufFile file(heap.bytes, heap.owner, "test.gguf");
  REQUIRE(file.tensors().size() == 5);
  CHECK(file.tensors()[0].name == "b");
  CHECK(file.tensors()[4].name == "w");
  REQUIRE(file.find("w") != nullptr);
  const GgufTensor& w = *file.find("w");
  CHECK(shape_of(w) == std::vector<Index>{3, 64});
  CHECK(w.type->name == "Q4_0");
  CHECK(w.type->format == FormatId::kQ4_0);
  CHECK(std::string(reinterpret_cast<const char*>(w.bytes.data()), w.bytes.size()) ==
        std::string(3 * 36, 'w'));
  CHECK(shape_of(*file.find("experts")) == std::vector<Index>{2, 2, 32});
  CHECK(file.find("experts")->bytes.size() == 4 * 34);
  CHECK(shape_of(*file.find("scalar")).empty());
  CHECK(file.find("scalar")->bytes.size() == 4);
  CHECK(file.find("empty")->bytes.empty());
  CHECK(file.find("b")->bytes.data() >= heap.bytes.data());
  CHECK(file.find("b")->bytes.data() + 12 <= heap.bytes.data() + heap.bytes.size());
  CHECK(file.find("v") == nullptr);
  CHECK(file.find("") == nullptr);
}

TEST_CASE("GgufFile: the owner lives as long as a copy of the handle") {
  auto heap = std::make_unique<HeapBytes>(valid());
  const std::weak_ptr<std::byte> watch = heap->owner;
  auto file = std::make_unique<GgufFile>(heap->bytes, heap->owner, "test.gguf");
  heap.reset();
  const GgufFile copy = *file;
  file.reset();
  CHECK(!watch.expired());
  CHECK(copy.metadata().as_string("general.name") == "tiny");
}

TEST_CASE("GgufFile: the alignment is the file's") {
  for (const std::uint32_t alignment : {1u, 8u, 32u, 64u, 4096u}) {
    CAPTURE(alignment);
    GgufWriter writer;
    writer.alignment = alignment;
    if (alignment != 32) writer.value("general.alignment", alignment);
    writer.tensor("a", {5}, 24, "aaaaa");
    writer.tensor("b", {5}, 24, "bbbbb");
    const GgufFile file = open(writer.bytes());
    CHECK(file.find("a")->bytes[4] == std::byte{'a'});
    CHECK(file.find("b")->bytes[0] == std::byte{'b'});
    CHECK(file.find("b")->bytes.data() - file.find("a")->bytes.data() ==
          static_cast<Index>((5 + alignment - 1) / alignment * alignment));
  }
}

TEST_CASE("GgufFile: every known type has its size, and what cannot be used is still read") {
  for (const kvdecode::GgufType& type : kvdecode::detail::kGgufTypes) {
    CAPTURE(type.name);
    CHECK(kvdecode::find_gguf_type(type.number) == &type);
    GgufWriter writer;
    writer.tensor("t", {3, 2 * type.block}, type.number,
                  std::string(static_cast<std::size_t>(6 * type.block_bytes), 't'));
    const GgufFile file = open(writer.bytes());
    CHECK(file.find("t")->type == &type);
    CHECK(static_cast<Index>(file.find("t")->bytes.size()) == 6 * type.block_bytes);
  }
  CHECK(kvdecode::find_gguf_type(4) == nullptr);
  CHECK(kvdecode::find_gguf_type(43) == nullptr);
}

TEST_CASE("GgufFile, hostile: the valid files load, the others are refused with a word that says why") {
  const auto path = [](std::string_view name) { return kHostile / (std::string(name) + ".gguf"); };
  for (const std::string_view name : {"valid", "valid-version-2"}) {
    const GgufFile file(path(name));
    CHECK(file.tensors().size() == 11);
    CHECK(file.version() == (name == "valid" ? 3 : 2));
    read_all(file);
  }
  const auto refused = [&](std::string_view name, ErrorCode code,
                           std::initializer_list<std::string_view> words) {
    CAPTURE(name);
    check_error(code, words, [&] { GgufFile file(path(name)); });
  };
  refused("empty", ErrorCode::kBadFile, {"empty.gguf", "is empty"});
  refused("magic", ErrorCode::kBadFile, {"magic.gguf", "does not begin with GGUF"});
  refused("version-4", ErrorCode::kUnsupported, {"GGUF version 4"});
  refused("truncated-header", ErrorCode::kBadFile, {"the number of tensors needs 8 bytes"});
  refused("n_tensors-huge", ErrorCode::kBadFile, {"the number of tensors is 1099511627776"});
  refused("n_kv-huge", ErrorCode::kBadFile, {"the number of metadata values is 8589934592"});
  refused("string-length-huge", ErrorCode::kBadFile, {"a string needs 18446744073709551615 bytes"});
  refused("array-nested", ErrorCode::kUnsupported, {"is an array of arrays"});
  refused("array-length-overflow", ErrorCode::kBadFile, {"an array's length is 4611686018427387904"});
  refused("dims-overflow", ErrorCode::kBadFile, {"[4, 2147483648, 2147483648]", "larger than memory"});
  refused("dim-negative", ErrorCode::kBadFile, {"a dimension of 9223372036854775808"});
  refused("n_dims-5", ErrorCode::kBadFile, {"has 5 dimensions"});
  refused("offset-beyond-file", ErrorCode::kBadFile, {"at byte 18446744073709551584 does not lie within"});
  refused("data-truncated", ErrorCode::kBadFile, {"blk.0.ffn_down.weight", "does not lie within"});
  refused("tensor-type-unknown", ErrorCode::kUnsupported, {"has type 4, which is not known"});
  refused("duplicate-tensor", ErrorCode::kBadFile, {"\"token_embd.weight\"", "twice"});
  refused("alignment-odd", ErrorCode::kBadFile, {"general.alignment must be a power of two, got 24"});
  refused("rows-not-whole-blocks", ErrorCode::kBadFile,
          {"rows of 8 numbers, not whole blocks of 256 (Q6_K)"});
}

TEST_CASE("GgufFile, hostile: what else a file may not say") {
  const auto refused = [](ErrorCode code, std::initializer_list<std::string_view> words,
                          const std::string& bytes) { check_error(code, words, [&] { open(bytes); }); };
  std::string bytes = valid();
  bytes[4] = 1;
  refused(ErrorCode::kUnsupported, {"GGUF version 1", "versions 2 and 3 are supported"}, bytes);
  bytes[4] = 0;
  bytes[7] = 3;
  refused(ErrorCode::kUnsupported, {"big-endian"}, bytes);
  {
    GgufWriter writer;
    writer.value("k", std::uint32_t{1});
    writer.value("k", std::uint32_t{2});
    refused(ErrorCode::kBadFile, {"\"k\" stands twice"}, writer.bytes());
  }
  {
    GgufWriter writer;
    writer.raw_value("k", 13, "12345678");
    refused(ErrorCode::kBadFile, {"\"k\" has a value of type 13, which is none"}, writer.bytes());
  }
  {
    GgufWriter writer;
    writer.raw_value("k", 7, "\2");
    refused(ErrorCode::kBadFile, {"\"k\" has a boolean that is neither 0 nor 1"}, writer.bytes());
  }
  {
    GgufWriter writer;
    writer.value("general.alignment", std::string_view("32"));
    refused(ErrorCode::kBadFile, {"general.alignment must be an integer"}, writer.bytes());
  }
  {
    GgufWriter writer;
    writer.value("general.alignment", std::uint32_t{0});
    refused(ErrorCode::kBadFile, {"general.alignment must be a power of two, got 0"}, writer.bytes());
  }
  {
    GgufWriter writer;
    writer.tensor("a", {8}, 0, std::string(32, 'a'));
    writer.tensor("b", {8}, 0, std::string(32, 'b'), std::uint64_t{0});
    refused(ErrorCode::kBadFile, {"begins at byte 0 of the data, within the tensor before it"},
            writer.bytes());
  }
  {
    GgufWriter writer;
    writer.tensor("a", {8}, 0, std::string(64, 'a'), std::uint64_t{4});
    refused(ErrorCode::kBadFile, {"begins at byte 4 of the data, not a multiple of the alignment 32"},
            writer.bytes());
  }
}

TEST_CASE("GgufFile, hostile: a file that ends early is an Error, wherever it does") {
  const std::string bytes = valid();
  const GgufFile file = open(bytes);
  std::size_t end = 0;  // of the last tensor
  const HeapBytes heap(bytes);
  const GgufFile whole(heap.bytes, heap.owner, "test.gguf");
  for (const GgufTensor& tensor : whole.tensors())
    end = std::max(end,
                   static_cast<std::size_t>(tensor.bytes.data() + tensor.bytes.size() - heap.bytes.data()));
  REQUIRE(end > 2000);
  for (std::size_t n = 0; n < end; ++n) {
    CAPTURE(n);
    check_error(ErrorCode::kBadFile, {"test.gguf: "}, [&] { open(std::string_view(bytes).substr(0, n)); });
  }
  CHECK_NOTHROW(open(std::string_view(bytes).substr(0, end)));
  CHECK_NOTHROW(open(bytes + "more"));
}

TEST_CASE("GgufFile, hostile: no change of a byte leads out of the file") {
  const std::string bytes = valid();
  std::mt19937 random(1);
  int n_accepted = 0, n_refused = 0;
  const auto try_file = [&](const std::string& text) {
    const HeapBytes heap(text);
    const auto error = io_test::error_of([&] {
      read_all(GgufFile(heap.bytes, heap.owner, "test.gguf"));
      ++n_accepted;
    });
    if (error) {
      CHECK((error->code() == ErrorCode::kBadFile || error->code() == ErrorCode::kUnsupported));
      ++n_refused;
    }
  };
  const std::size_t n_header = 1200;
  for (std::size_t i = 0; i < n_header; ++i) {
    for (const char c : {'\0', '\x01', '\x08', '\x09', '\x7f', '\xff'}) {
      std::string text = bytes;
      text[i] = c;
      try_file(text);
    }
  }
  for (int round = 0; round < 3000; ++round) {
    std::string text = bytes;
    for (int change = 0; change < 3; ++change) text[random() % n_header] = text[random() % n_header];
    try_file(text);
  }
  CHECK(n_accepted > 100);
  CHECK(n_refused > 1000);
}

TEST_CASE("open_gguf_files: one file, or all files of a split in their order") {
  const TemporaryFolder folder;
  const auto shard = [&](int number, int count, int n_tensors, std::string_view tensor) {
    GgufWriter writer;
    if (number == 0) writer.value("general.architecture", std::string_view("llama"));
    writer.value("split.no", static_cast<std::uint16_t>(number));
    writer.value("split.count", static_cast<std::uint16_t>(count));
    writer.value("split.tensors.count", static_cast<std::int32_t>(n_tensors));
    writer.tensor(tensor, {2}, 0, "12345678");
    return writer.bytes();
  };
  const auto first = folder.write("m-00001-of-00003.gguf", shard(0, 3, 3, "a"));
  const auto second = folder.write("m-00002-of-00003.gguf", shard(1, 3, 3, "b"));
  folder.write("m-00003-of-00003.gguf", shard(2, 3, 3, "c"));
  for (const auto& path : {first, second}) {
    const std::vector<GgufFile> files = kvdecode::open_gguf_files(path);
    REQUIRE(files.size() == 3);
    CHECK(files[0].find("a") != nullptr);
    CHECK(files[1].find("b") != nullptr);
    CHECK(files[2].find("c") != nullptr);
    CHECK(files[0].metadata().contains("general.architecture"));
  }
  CHECK(kvdecode::open_gguf_files(kHostile / "valid.gguf").size() == 1);

  const auto open_first = [&] { kvdecode::open_gguf_files(first); };
  folder.write("m-00003-of-00003.gguf", shard(1, 3, 3, "c"));
  check_error(ErrorCode::kMismatch, {"m-00003-of-00003.gguf: is file 2 of 3", "expected file 3 of 3"},
              open_first);
  folder.write("m-00003-of-00003.gguf", shard(2, 4, 3, "c"));
  check_error(ErrorCode::kMismatch, {"is file 3 of 4"}, open_first);
  folder.write("m-00003-of-00003.gguf", shard(2, 3, 4, "c"));
  check_error(ErrorCode::kMismatch, {"with 4 tensors in all"}, open_first);
  std::filesystem::remove(folder.path() / "m-00003-of-00003.gguf");
  check_error(ErrorCode::kBadFile, {"m-00003-of-00003.gguf: cannot be opened"}, open_first);
  folder.write("m-00001-of-00003.gguf", shard(0, 3, 4, "a"));
  folder.write("m-00002-of-00003.gguf", shard(1, 3, 4, "b"));
  folder.write("m-00003-of-00003.gguf", shard(2, 3, 4, "c"));
  check_error(ErrorCode::kMismatch, {"the 3 files have 3 tensors, split.tensors.count says 4"}, open_first);
  const auto other = folder.write("other.gguf", shard(0, 3, 3, "a"));
  check_error(ErrorCode::kBadFile, {"name must end with -00001-of-00003.gguf"},
              [&] { kvdecode::open_gguf_files(other); });
  folder.write("other.gguf", shard(3, 3, 3, "a"));
  check_error(ErrorCode::kBadFile, {"split.no 3 of split.count 3 is none"},
              [&] { kvdecode::open_gguf_files(other); });
  folder.write("other.gguf", shard(0, 0, 1, "a"));
  CHECK(kvdecode::open_gguf_files(other).size() == 1);
}
