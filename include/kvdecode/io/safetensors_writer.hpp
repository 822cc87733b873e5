// SPDX-License-Identifier: MIT
// <kvdecode/io/safetensors_writer.hpp> - writes safetensors files: wide elements first, then by name, the
// data at a multiple of eight bytes, so that every tensor is aligned to its elements.
#pragma once

#include <kvdecode/io/atomic_file.hpp>
#include <kvdecode/io/json.hpp>
#include <kvdecode/io/safetensors.hpp>
#include <kvdecode/io/safetensors_dtype.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// A tensor of values in memory, which have to outlive it.
template <SafetensorsScalar T>
SafetensorsTensor as_tensor(std::string name, std::vector<Index> shape, std::span<const T> values) {
  return {std::move(name), safetensors_dtype_of<T>(), std::move(shape), std::as_bytes(values)};
}

namespace detail {

/// A JSON string; names must be UTF-8.
inline std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    raise(ErrorCode::kBadArgument, "safetensors: ", in_quotes(text), " is not UTF-8");
  }
}

/// A JSON list. By hand: a list of nlohmann's allocates when it is destroyed, and ends the program if it cannot.
inline std::string json_list(std::span<const Index> numbers) {
  std::string text = "[";
  for (const Index number : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(number);
  return text + "]";
}

/// A file of these tensors in its parts: length and header, which go into `head`, and the tensors in their order.
/// @throws Error as write_safetensors()
inline std::vector<std::span<const std::byte>> safetensors_parts(
    std::span<const SafetensorsTensor> tensors, const std::map<std::string, std::string>& metadata,
    std::string& head) {
  std::vector<const SafetensorsTensor*> order;  // in the file
  for (const SafetensorsTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
    const std::uint64_t bits_a = dtype_entry(a->dtype).bits;
    const std::uint64_t bits_b = dtype_entry(b->dtype).bits;
    return bits_a != bits_b ? bits_a > bits_b : a->name < b->name;
  });

  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [name, value] : metadata)
      header += (header.back() == '{' ? "" : ",") + json_string(name) + ":" + json_string(value);
    header += "}";
  }
  std::map<std::string, bool> names;
  std::vector<std::span<const std::byte>> parts(1);  // head, then the tensors
  std::uint64_t offset = 0;
  for (const SafetensorsTensor* const tensor : order) {
    if (tensor->name == "__metadata__" || !names.emplace(tensor->name, true).second) [[unlikely]]
      raise(ErrorCode::kBadArgument, "safetensors: the tensor name ", in_quotes(tensor->name),
            tensor->name == "__metadata__" ? " is reserved" : " stands twice");
    const std::optional<std::uint64_t> expected = n_bytes(tensor->dtype, tensor->shape);
    if (!expected || *expected != tensor->bytes.size()) [[unlikely]]
      raise(ErrorCode::kBadArgument, "safetensors: tensor ", in_quotes(tensor->name), " of ",
            tensor->bytes.size(), " bytes is not of dtype ", to_string(tensor->dtype), " and shape ",
            to_text(tensor->shape));
    header += (header.size() == 1 ? "" : ",") + json_string(tensor->name) + ":{\"dtype\":\"" +
              std::string(to_string(tensor->dtype)) + "\",\"shape\":" + json_list(tensor->shape) +
              ",\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + tensor->bytes.size()) + "]}";
    offset += tensor->bytes.size();
    parts.push_back(tensor->bytes);
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');

  const std::uint64_t n_header = header.size();
  head.assign(reinterpret_cast<const char*>(&n_header), sizeof n_header);
  head += header;
  parts[0] = std::as_bytes(std::span(head));
  return parts;
}

}  // namespace detail

/// Writes the file as a whole or not at all (write_file_atomically). The same tensors and metadata, in any
/// order, give the same bytes.
/// @throws Error kBadArgument: a name twice, reserved or not UTF-8, or bytes that are not those of the shape
/// @throws Error kBadFile, naming the path: it cannot be written
inline void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
  std::string head;
  write_file_atomically(path, detail::safetensors_parts(tensors, metadata, head));
}

}  // namespace kvdecode
