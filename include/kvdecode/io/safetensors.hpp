// SPDX-License-Identifier: MIT
// <kvdecode/io/safetensors.hpp> - reads safetensors files: a length, a JSON header of that length, and the
// tensors' bytes without gap or overlap. Nothing in the header is believed before it is checked.
#pragma once

#include <kvdecode/io/json.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/io/safetensors_dtype.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// A named array: row-major, little-endian, at any alignment. It does not own its bytes.
struct SafetensorsTensor {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::kF32;
  std::vector<Index> shape;  // outermost extent first; empty: a single value
  std::span<const std::byte> bytes;
};

namespace detail {

/// A shape as errors show it: "[80, 48]".
inline std::string to_text(std::span<const Index> shape) {
  std::string text = "[";
  for (const Index extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

struct SafetensorsRecord {
  SafetensorsTensor tensor;
  std::uint64_t begin = 0;  // of its bytes, from the end of the header
  std::uint64_t end = 0;
};

/// Reads the header as it comes, so that what it may nest and how much memory it may take follow from the
/// format: an object of tensors { dtype, shape, data_offsets } and of __metadata__, strings by name.
class SafetensorsHeader : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("true or false"); }
  bool number_float(double, const std::string&) { unexpected("a number that is not a whole one"); }
  bool number_integer(std::int64_t) { unexpected("a negative number"); }
  bool number_unsigned(std::uint64_t value) {
    if (state_ != State::kShape && state_ != State::kOffsets) [[unlikely]]
      unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<Index>::max())) [[unlikely]]
      position_.fail("tensor ", name(), ": ", value, " is beyond 63 bits");
    if (state_ == State::kShape) {
      if (record().tensor.shape.size() == kMaxRank) [[unlikely]]
        position_.fail("tensor ", name(), ": a shape of more than ", kMaxRank, " extents");
      record().tensor.shape.push_back(static_cast<Index>(value));
    } else {
      if (n_offsets_ == 2) [[unlikely]]
        position_.fail("tensor ", name(), ": more than two data_offsets");
      (n_offsets_++ == 0 ? record().begin : record().end) = value;
    }
    return true;
  }
  bool string(std::string& value) {
    if (state_ == State::kMetadata) {
      metadata.emplace_back(std::move(key_), std::move(value));
    } else if (state_ == State::kTensor && field_ == kDtype) {
      const std::optional<SafetensorsDtype> dtype = safetensors_dtype(value);
      if (!dtype) [[unlikely]]
        position_.fail("tensor ", name(), ": unknown dtype ", in_quotes(value));
      record().tensor.dtype = *dtype;
    } else {
      unexpected("a string");
    }
    return true;
  }
  bool start_object(std::size_t) {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop && key_ == "__metadata__") {
      if (std::exchange(has_metadata_, true)) [[unlikely]]
        position_.fail("the key \"__metadata__\" stands twice in one object");
      state_ = State::kMetadata;
    } else if (state_ == State::kTop) {
      records.emplace_back().tensor.name = std::move(key_);
      state_ = State::kTensor;
      seen_ = 0;
      n_offsets_ = 0;
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool key(std::string& value) {
    if (state_ == State::kTensor) {
      field_ = value == "dtype" ? kDtype : value == "shape" ? kShape : value == "data_offsets" ? kOffsets : 0;
      if (field_ == 0) [[unlikely]]
        position_.fail("tensor ", name(), ": unknown key ", in_quotes(value));
      if ((seen_ & field_) != 0) [[unlikely]]
        position_.fail("tensor ", name(), ": the key ", in_quotes(value), " stands twice in one object");
      seen_ |= field_;
    } else {
      key_ = std::move(value);
    }
    return true;
  }
  bool start_array(std::size_t) {
    if (state_ != State::kTensor || (field_ != kShape && field_ != kOffsets)) [[unlikely]]
      unexpected("a list");
    state_ = field_ == kShape ? State::kShape : State::kOffsets;
    return true;
  }
  bool end_array() {
    if (state_ == State::kOffsets && n_offsets_ != 2) [[unlikely]]
      position_.fail("tensor ", name(), ": data_offsets must be two numbers");
    state_ = State::kTensor;
    return true;
  }
  bool end_object() {
    if (state_ == State::kTensor && seen_ != (kDtype | kShape | kOffsets)) [[unlikely]]
      position_.fail("tensor ", name(), ": needs dtype, shape and data_offsets");
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  std::vector<SafetensorsRecord> records;
  std::vector<std::pair<std::string, std::string>> metadata;

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  static constexpr std::size_t kMaxRank = 64;                      // so that memory stays in proportion
  static constexpr unsigned kDtype = 1, kShape = 2, kOffsets = 4;  // bits of the keys of a tensor

  SafetensorsRecord& record() { return records.back(); }
  std::string name() { return in_quotes(record().tensor.name); }

  [[noreturn]] void unexpected(std::string_view what) {
    switch (state_) {
      case State::kMetadata: position_.fail("__metadata__ must hold strings only, got ", what);
      case State::kTensor: position_.fail("tensor ", name(), ": ", what, " has no place there");
      case State::kShape: position_.fail("tensor ", name(), ": a shape of whole numbers, got ", what);
      case State::kOffsets: position_.fail("tensor ", name(), ": data_offsets of whole numbers, got ", what);
      case State::kTop: position_.fail(in_quotes(key_), " must be an object, got ", what);
      default: position_.fail("the header must be an object, got ", what);
    }
  }

  State state_ = State::kStart;
  std::string key_;         // the last one in the outermost object or in __metadata__
  unsigned field_ = 0;      // the last key of a tensor
  unsigned seen_ = 0;       // keys of this tensor
  unsigned n_offsets_ = 0;  // of this tensor
  bool has_metadata_ = false;
};

/// Names must be unique; `items` gets sorted by them.
template <class Items, class Name>
void sort_by_unique_name(Items& items, const std::string& source, Name name) {
  std::sort(items.begin(), items.end(), [&](const auto& a, const auto& b) { return name(a) < name(b); });
  const auto twice = std::adjacent_find(items.begin(), items.end(),
                                        [&](const auto& a, const auto& b) { return name(a) == name(b); });
  if (twice != items.end()) [[unlikely]]
    raise(ErrorCode::kBadFile, source, ": the name ", in_quotes(name(*twice)), " stands twice");
}

/// Checks the records against one another and `data`, and gives them their bytes.
inline void place_tensors(std::vector<SafetensorsRecord>& records, std::span<const std::byte> data,
                          const std::string& source) {
  std::vector<SafetensorsRecord*> order;  // in the file
  order.reserve(records.size());
  for (SafetensorsRecord& record : records) order.push_back(&record);
  std::sort(order.begin(), order.end(), [](const SafetensorsRecord* a, const SafetensorsRecord* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t covered = 0;
  for (SafetensorsRecord* const placed : order) {
    SafetensorsRecord& record = *placed;
    const std::string_view name = record.tensor.name;
    if (record.end < record.begin || record.end > data.size()) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), ": data_offsets [", record.begin, ", ",
            record.end, "] do not lie within the ", data.size(), " bytes of data");
    if (record.begin != covered) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), ": data_offsets begin at ",
            record.begin,
            record.begin < covered ? ", within the tensor before it, which ends at "
                                   : ", after a hole, the tensor before it ends at ",
            covered);
    const std::optional<std::uint64_t> expected = n_bytes(record.tensor.dtype, record.tensor.shape);
    if (!expected) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), ": shape of ",
            record.tensor.shape.size(), " extents and dtype ", to_string(record.tensor.dtype),
            " do not make a whole number of bytes below 2^61");
    if (*expected != record.end - record.begin) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": tensor ", in_quotes(name), ": shape and dtype ",
            to_string(record.tensor.dtype), " make ", *expected, " bytes, data_offsets ",
            record.end - record.begin);
    record.tensor.bytes = data.subspan(record.begin, record.end - record.begin);
    covered = record.end;
  }
  if (covered != data.size()) [[unlikely]]
    raise(ErrorCode::kBadFile, source, ": the tensors end at byte ", covered, " of the data, which has ",
          data.size());
}

}  // namespace detail

/// The tensors of a safetensors file, where they lie. A cheap handle: copies share the memory, which lives as
/// long as the last of them or of what owner() gave away.
class SafetensorsFile {
 public:
  /// Maps the file. O(header).
  /// @throws Error kBadFile, naming the path and what is wrong
  explicit SafetensorsFile(const std::filesystem::path& path) : SafetensorsFile(MappedFile(path)) {}

  /// A file in memory, which `owner` keeps alive; `source` names it in errors.
  SafetensorsFile(std::span<const std::byte> file, std::shared_ptr<const void> owner, std::string source)
      : contents_(std::make_shared<const Contents>(read(file, std::move(owner), std::move(source)))) {}

  /// All tensors, by name.
  std::span<const SafetensorsTensor> tensors() const noexcept { return contents_->tensors; }
  /// The tensor of that name; nullptr if there is none.
  const SafetensorsTensor* find(std::string_view name) const noexcept {
    const auto found = std::lower_bound(
        tensors().begin(), tensors().end(), name,
        [](const SafetensorsTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return found != tensors().end() && found->name == name ? &*found : nullptr;
  }
  /// The tensor of that name.
  /// @throws Error kMismatch if there is none
  const SafetensorsTensor& tensor(std::string_view name) const {
    const SafetensorsTensor* const found = find(name);
    if (found == nullptr) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, source(), ": has no tensor ", detail::in_quotes(name));
    return *found;
  }
  /// Strings by name, sorted: "format" is usually "pt".
  std::span<const std::pair<std::string, std::string>> metadata() const noexcept {
    return contents_->metadata;
  }
  const std::string& source() const noexcept { return contents_->source; }
  /// Keeps the bytes of the tensors valid.
  const std::shared_ptr<const void>& owner() const noexcept { return contents_->owner; }

 private:
  struct Contents {
    std::vector<SafetensorsTensor> tensors;
    std::vector<std::pair<std::string, std::string>> metadata;
    std::shared_ptr<const void> owner;
    std::string source;
  };

  explicit SafetensorsFile(const MappedFile& file)
      : SafetensorsFile(file.bytes(), file.owner(), file.path()) {}

  static Contents read(std::span<const std::byte> file, std::shared_ptr<const void> owner,
                       std::string source) {
    constexpr std::uint64_t kMaxHeader = 100'000'000;  // bytes, as the format's own reader has it
    std::uint64_t n_header = 0;
    if (file.size() < sizeof n_header) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, source, ": ", file.size(),
                    " bytes are too few for a safetensors file");
    std::memcpy(&n_header, file.data(), sizeof n_header);
    file = file.subspan(sizeof n_header);
    if (n_header > kMaxHeader || n_header > file.size()) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, source, ": a header of ", n_header, " bytes, in a file with ",
                    file.size(), " after its length (at most ", kMaxHeader, " are allowed)");
    const std::string_view text(reinterpret_cast<const char*>(file.data()), n_header);
    if (text.empty() || text.front() != '{') [[unlikely]]
      detail::raise(ErrorCode::kBadFile, source, ": the header does not begin with {");

    detail::JsonPosition position{source, sizeof n_header, nullptr, nullptr};
    detail::SafetensorsHeader header(position);
    detail::read_json_events(text, position, header);
    detail::sort_by_unique_name(header.records, source,
                                [](const auto& record) -> const std::string& { return record.tensor.name; });
    detail::sort_by_unique_name(header.metadata, source,
                                [](const auto& entry) -> const std::string& { return entry.first; });
    detail::place_tensors(header.records, file.subspan(n_header), source);

    Contents contents;
    contents.tensors.reserve(header.records.size());
    for (detail::SafetensorsRecord& record : header.records)
      contents.tensors.push_back(std::move(record.tensor));
    contents.metadata = std::move(header.metadata);
    contents.owner = std::move(owner);
    contents.source = std::move(source);
    return contents;
  }

  std::shared_ptr<const Contents> contents_;
};

/// The values of a tensor, copied.
/// @throws Error kMismatch if they are of another type than T
template <SafetensorsScalar T>
std::vector<T> values_of(const SafetensorsTensor& tensor) {
  if (tensor.dtype != safetensors_dtype_of<T>()) [[unlikely]]
    detail::raise(ErrorCode::kMismatch, "tensor ", detail::in_quotes(tensor.name), " has dtype ",
                  to_string(tensor.dtype), ", expected ", to_string(safetensors_dtype_of<T>()));
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace kvdecode
