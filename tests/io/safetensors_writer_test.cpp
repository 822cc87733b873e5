// SPDX-License-Identifier: MIT
#include <kvdecode/io/safetensors_writer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using kvdecode::as_tensor;
using kvdecode::ErrorCode;
using kvdecode::Index;
using kvdecode::SafetensorsDtype;
using kvdecode::SafetensorsFile;
using kvdecode::SafetensorsTensor;
using kvdecode::write_safetensors;

namespace {

template <class T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

}  // namespace

TEST_CASE("write_safetensors: the bytes are those of the format") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.safetensors";
  const std::vector<float> logits = {1.0f, -2.0f};
  const std::vector<std::int64_t> tokens = {3};
  write_safetensors(
      path, std::vector{as_tensor("logits", {1, 2}, view(logits)), as_tensor("tokens", {1}, view(tokens))},
      {{"format", "pt"}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"tokens":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("logits":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  CHECK(
      io_test::read_text(path) ==
      io_test::raw_safetensors(header + padding, std::string("\3\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\xc0", 16)));
}

TEST_CASE("write_safetensors: what is written is read again, each tensor aligned to its elements") {
  const io_test::TemporaryFolder folder;
  const std::vector<double> doubles = {0.5, -0.25, 1e300};
  const std::vector<float> floats = {1.0f, 2.0f, 3.0f, 4.0f};
  const std::vector<std::int64_t> longs = {-1, 7};
  const std::vector<std::int32_t> ints = {-5};
  const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5, 6};
  const std::string odd_name = "a \"quoted\"\n\x01 näme";
  std::vector<SafetensorsTensor> tensors = {
      as_tensor("u8", {1}, view(bytes).first(1)),
      as_tensor("f32", {2, 2}, view(floats)),
      {"bf16", SafetensorsDtype::kBF16, {3}, std::as_bytes(view(bytes))},
      as_tensor("f64", {3, 1}, view(doubles)),
      {"f16", SafetensorsDtype::kF16, {1, 3}, std::as_bytes(view(bytes))},
      as_tensor("i32", {}, view(ints)),
      as_tensor(odd_name, {2}, view(longs)),
      as_tensor("none", {0, 4}, std::span<const float>()),
  };
  const std::filesystem::path path = folder.path() / "out.safetensors";
  for (const char* const filler : {"", "x", "xx", "xxxxxx"}) {
    write_safetensors(path, tensors, {{"a", filler}, {"b", "\"\\"}});
    const SafetensorsFile file(path);
    REQUIRE(file.tensors().size() == tensors.size());
    const std::byte* const start =
        std::min_element(file.tensors().begin(), file.tensors().end(), [](const auto& a, const auto& b) {
          return a.bytes.data() < b.bytes.data();
        })->bytes.data();
    CHECK(reinterpret_cast<std::uintptr_t>(start) % 8 == 0);
    for (const SafetensorsTensor& written : tensors) {
      const SafetensorsTensor& read = file.tensor(written.name);
      CAPTURE(written.name);
      CHECK(read.dtype == written.dtype);
      CHECK(read.shape == written.shape);
      CHECK(std::equal(read.bytes.begin(), read.bytes.end(), written.bytes.begin(), written.bytes.end()));
      CHECK(reinterpret_cast<std::uintptr_t>(read.bytes.data()) %
                (kvdecode::detail::dtype_entry(read.dtype).bits / 8) ==
            0);
    }
    CHECK(file.metadata()[0].second == filler);
    CHECK(file.metadata()[1].second == "\"\\");
  }
  const std::string first = io_test::read_text(path);
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(path, tensors, {{"b", "\"\\"}, {"a", "xxxxxx"}});
  CHECK(io_test::read_text(path) == first);
}

TEST_CASE("write_safetensors: the reference's own files survive a copy") {
  const io_test::TemporaryFolder folder;
  const SafetensorsFile original(std::filesystem::path(KVDECODE_TEST_DATA_DIR) /
                                 "golden/llama-gqa-tied/model.safetensors");
  const std::filesystem::path path = folder.path() / "copy.safetensors";
  write_safetensors(path, original.tensors(), {{"format", "pt"}});
  const SafetensorsFile copy(path);
  REQUIRE(copy.tensors().size() == original.tensors().size());
  for (std::size_t i = 0; i < copy.tensors().size(); ++i) {
    CHECK(copy.tensors()[i].name == original.tensors()[i].name);
    CHECK(std::equal(copy.tensors()[i].bytes.begin(), copy.tensors()[i].bytes.end(),
                     original.tensors()[i].bytes.begin(), original.tensors()[i].bytes.end()));
  }
}

TEST_CASE("write_safetensors: a file without tensors is a file") {
  const io_test::TemporaryFolder folder;
  write_safetensors(folder.path() / "out", {});
  CHECK(SafetensorsFile(folder.path() / "out").tensors().empty());
}

TEST_CASE("write_safetensors: what no reader would take is not written") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.safetensors";
  const std::vector<float> values = {1.0f, 2.0f};
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           std::vector<SafetensorsTensor> tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    check_error(ErrorCode::kBadArgument, words, [&] { write_safetensors(path, tensors, metadata); });
    CHECK(!std::filesystem::exists(path));
  };
  refused({"\"t\"", "8 bytes", "F32", "[3]"}, {as_tensor("t", {3}, view(values))});
  refused({"\"t\"", "[-1, -2]"}, {as_tensor("t", {-1, -2}, view(values))});
  refused({"\"t\"", "[4294967296, 4294967296]"},
          {as_tensor("t", {Index{1} << 32, Index{1} << 32}, std::span<const float>())});
  refused({"\"t\" stands twice"},
          {as_tensor("t", {2}, view(values)),
           SafetensorsTensor{"t", SafetensorsDtype::kU8, {8}, std::as_bytes(view(values))}});
  refused({"\"__metadata__\" is reserved"}, {as_tensor("__metadata__", {2}, view(values))});
  refused({"not UTF-8"}, {as_tensor("\xff", {2}, view(values))});
  refused({"not UTF-8"}, {}, {{"a", "\xc3"}});
  check_error(ErrorCode::kBadFile, {"nowhere"},
              [&] { write_safetensors(folder.path() / "nowhere" / "out", {}); });
}
