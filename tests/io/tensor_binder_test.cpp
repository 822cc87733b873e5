// SPDX-License-Identifier: MIT
#include <kvdecode/io/tensor_binder.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using io_test::HeapBytes;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::LoadReport;
using kvdecode::SafetensorsFile;
using kvdecode::TensorBinder;
using kvdecode::Weights;

namespace {

/// The file with this header and data 0, 1, 2, …
SafetensorsFile file_of(std::string_view header, std::size_t n_data, std::string_view name) {
  std::string data(n_data, '\0');
  for (std::size_t i = 0; i < n_data; ++i) data[i] = static_cast<char>(i);
  const HeapBytes heap(io_test::raw_safetensors(header, data));
  return SafetensorsFile(heap.bytes, heap.owner, std::string(name));
}

SafetensorsFile small_file() {
  return file_of(R"({"m.weight":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},)"
                 R"("m.bias":{"dtype":"F32","shape":[3],"data_offsets":[12,24]},)"
                 R"("i":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}})",
                 32, "small.safetensors");
}

TensorBinder small_binder() {
  TensorBinder tensors("the model");
  tensors.add(small_file());
  return tensors;
}

}  // namespace

TEST_CASE("TensorBinder: a transposed matrix, one matrix of many, a norm") {
  const SafetensorsFile file = file_of(R"({"m":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},)"
                                       R"("n.bias":{"dtype":"F16","shape":[2],"data_offsets":[12,16]},)"
                                       R"("n.weight":{"dtype":"F16","shape":[2],"data_offsets":[16,20]},)"
                                       R"("s":{"dtype":"F16","shape":[2,1,3],"data_offsets":[20,32]}})",
                                       32, "file.safetensors");
  TensorBinder tensors("the model");
  tensors.add(file);
  const kvdecode::MatrixView m = tensors.transposed("m", 2, 3);
  CHECK(m.transposed);
  CHECK(m.rows == 2);
  CHECK(m.cols == 3);
  CHECK(m.stride == 4);
  CHECK(m.data == file.tensor("m").bytes.data());
  check_error(ErrorCode::kMismatch, {"\"m\" has shape [3, 2], expected [2, 3]"},
              [&] { tensors.transposed("m", 3, 2); });
  for (kvdecode::Index i = 0; i < 2; ++i) {
    const kvdecode::MatrixView s = tensors.matrix_of("s", i, 2, 1, 3);
    CHECK(!s.transposed);
    CHECK(s.rows == 1);
    CHECK(s.cols == 3);
    CHECK(s.stride == 6);
    CHECK(s.data == file.tensor("s").bytes.data() + 6 * i);
  }
  check_error(ErrorCode::kMismatch, {"\"s\" has shape [2, 1, 3], expected [3, 1, 2]"},
              [&] { tensors.matrix_of("s", 0, 3, 1, 2); });
  CHECK(tensors.norm("n", 2, false).bias.empty());
  const kvdecode::NormWeights norm = tensors.norm("n", 2, true);
  CHECK(norm.weight.data == file.tensor("n.weight").bytes.data());
  CHECK(norm.bias.data == file.tensor("n.bias").bytes.data());
  CHECK(norm.bias.size == 2);
  check_error(ErrorCode::kMismatch, {"\"m.weight\" is missing"}, [&] { tensors.norm("m", 2, true); });
  Weights weights;
  LoadReport report;
  tensors.finish(weights, report);
  CHECK(report.n_tensors == 4);
  CHECK(report.n_parameters == 16);
}

TEST_CASE("TensorBinder: hands out views of the bytes in the file") {
  const SafetensorsFile file = small_file();
  TensorBinder tensors("the model");
  tensors.add(file);
  const kvdecode::LinearWeights m = tensors.linear("m", 3, 2, true);
  CHECK(m.matrix.format == FormatId::kBF16);
  CHECK(m.matrix.data == file.tensor("m.weight").bytes.data());
  CHECK(m.matrix.rows == 3);
  CHECK(m.matrix.cols == 2);
  CHECK(m.matrix.stride == 4);
  CHECK(!m.matrix.transposed);
  CHECK(m.bias.format == FormatId::kF32);
  CHECK(m.bias.data == file.tensor("m.bias").bytes.data());
  CHECK(m.bias.size == 3);
  CHECK(tensors.linear("m", 3, 2, false).bias.empty());
  CHECK(tensors.contains("m.weight"));
  CHECK(!tensors.contains("m"));
}

TEST_CASE("TensorBinder: missing, misshapen and unusable tensors are refused by name") {
  TensorBinder tensors = small_binder();
  check_error(ErrorCode::kMismatch, {"the model", "\"x\" is missing", "[4, 5]"},
              [&] { tensors.matrix("x", 4, 5); });
  check_error(ErrorCode::kMismatch, {"\"m.weight\" has shape [3, 2], expected [2, 3]"},
              [&] { tensors.matrix("m.weight", 2, 3); });
  check_error(ErrorCode::kMismatch, {"\"m.weight\" has shape [3, 2], expected [6]"},
              [&] { tensors.vector("m.weight", 6); });
  check_error(ErrorCode::kMismatch, {"\"m.bias\" has shape [3], expected [3, 1]"},
              [&] { tensors.matrix("m.bias", 3, 1); });
  check_error(ErrorCode::kUnsupported,
              {"\"i\" is stored as I64, which is not supported (supported: f32, bf16, f16, f64)"},
              [&] { tensors.vector("i", 1); });
  check_error(ErrorCode::kMismatch, {"\"i.bias\" is missing"}, [&] {
    TensorBinder other("other");
    other.add(file_of(R"({"i.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})", 4, "f"));
    other.linear("i", 1, 1, true);
  });
}

TEST_CASE("TensorBinder: what nobody asked for is refused, what is ignored is reported") {
  TensorBinder tensors = small_binder();
  Weights weights;
  LoadReport report;
  tensors.linear("m", 3, 2, false);
  check_error(ErrorCode::kMismatch, {"\"i\"", "[1]", "no place", "1 others"},
              [&] { tensors.finish(weights, report); });
  tensors.ignore("m.bias", "not wanted");
  check_error(ErrorCode::kMismatch, {"the model: tensor \"i\" of shape [1] has no place"},
              [&] { tensors.finish(weights, report); });
  tensors.ignore("i", "not a weight");
  tensors.ignore("absent", "never mind");
  report = {};
  tensors.finish(weights, report);
  CHECK(report.files == std::vector<std::string>{"small.safetensors"});
  CHECK(report.n_tensors == 1);
  CHECK(report.n_parameters == 6);
  CHECK(report.n_bytes == 12);
  CHECK(report.formats == std::vector<kvdecode::FormatUse>{{FormatId::kBF16, 1, 12}});
  REQUIRE(report.ignored_tensors.size() == 2);
  CHECK(report.ignored_tensors[0].name == "i");
  CHECK(report.ignored_tensors[0].reason == "not a weight");
  CHECK(report.ignored_tensors[1].name == "m.bias");
  CHECK(weights.owners.size() == 1);
}

TEST_CASE("TensorBinder: what begins or ends in a way can be left aside") {
  TensorBinder tensors = small_binder();
  tensors.ignore_prefix("m.", "of no use");
  tensors.ignore_suffix("i", "not a weight");
  tensors.matrix("m.weight", 3, 2);  // used all the same
  Weights weights;
  LoadReport report;
  tensors.finish(weights, report);
  REQUIRE(report.ignored_tensors.size() == 2);
  CHECK(report.ignored_tensors[0].reason == "not a weight");
  CHECK(report.ignored_tensors[1].name == "m.bias");
  CHECK(report.ignored_tensors[1].reason == "of no use");
  TensorBinder others = small_binder();
  others.ignore_prefix("weight", "nothing begins so");
  check_error(ErrorCode::kMismatch, {"no place", "2 others"}, [&] { others.finish(weights, report); });
}

TEST_CASE("TensorBinder: formats are counted each for itself") {
  TensorBinder tensors = small_binder();
  tensors.linear("m", 3, 2, true);
  tensors.linear("m", 3, 2, true);
  tensors.ignore_suffix("i", "not a weight");
  Weights weights;
  LoadReport report;
  tensors.finish(weights, report);
  CHECK(report.n_tensors == 2);
  CHECK(report.n_parameters == 9);
  CHECK(report.n_bytes == 24);
  CHECK(report.formats ==
        std::vector<kvdecode::FormatUse>{{FormatId::kF32, 1, 12}, {FormatId::kBF16, 1, 12}});
}

TEST_CASE("TensorBinder: a tensor in two files is refused") {
  TensorBinder tensors = small_binder();
  check_error(ErrorCode::kBadFile, {"second.safetensors", "\"i\"", "another file"}, [&] {
    tensors.add(
        file_of(R"({"i":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "second.safetensors"));
  });
}

TEST_CASE("TensorBinder: a tied head may be repeated, but not differ") {
  const auto tie = [](std::string_view dtype, std::string_view shape, char last) {
    const std::string header = R"({"e":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"h":{"dtype":")" +
                               std::string(dtype) + R"(","shape":)" + std::string(shape) +
                               R"(,"data_offsets":[4,8]}})";
    const HeapBytes heap(io_test::raw_safetensors(header, std::string("abcdabc") + last));
    TensorBinder tensors("the model");
    tensors.add(SafetensorsFile(heap.bytes, heap.owner, "f"));
    tensors.matrix("e", 2, 1);
    tensors.tied_head("h", "e");
    Weights weights;
    LoadReport report;
    tensors.finish(weights, report);
    return report;
  };
  const LoadReport report = tie("BF16", "[2,1]", 'd');
  REQUIRE(report.ignored_tensors.size() == 1);
  CHECK(report.ignored_tensors[0].name == "h");
  CHECK(report.ignored_tensors[0].reason.find("equals e") != std::string::npos);
  check_error(ErrorCode::kMismatch, {"\"e\"", "\"h\"", "differs"}, [&] { tie("BF16", "[2,1]", 'x'); });
  check_error(ErrorCode::kMismatch, {"differs"}, [&] { tie("F16", "[2,1]", 'd'); });
  check_error(ErrorCode::kMismatch, {"differs"}, [&] { tie("BF16", "[1,2]", 'd'); });
}
