// SPDX-License-Identifier: MIT
// What each format of keys and values costs the model that ships, held against what a reference measured in double
// (tests/data/kvquant/perplexity.json).
#include <kvdecode/io/json.hpp>
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/pipeline.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace kvdecode;

constexpr double kBound = 0.003;

class Measured {
 public:
  Measured() {
    const std::filesystem::path data(KVDECODE_EXAMPLE_DATA_DIR);
    const TextModel model = load_text_model(data / "tiny-shakespeare");
    std::ifstream text(data / "sonnets.txt", std::ios::binary);
    tokens_ = model.tokenizer().encode(std::string{std::istreambuf_iterator<char>(text), {}});
    transformer_.emplace(model.transformer<float>());
    table_ = load_json(std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "kvquant/perplexity.json");
  }

  /// Held against the reference.
  template <class K, class V>
  double perplexity(const std::string& name) {
    CAPTURE(name);
    const Perplexity found = kvdecode::perplexity<ContiguousCache<K, V>>(
        *transformer_, tokens_, {.window = table_.at("window_tokens").get<Index>()}, team_);
    CHECK(found.n_predicted == table_.at("predicted").get<Index>());
    CHECK(std::abs(found.value / table_.at("perplexity").at(name).get<double>() - 1.0) <= kBound);
    return found.value;
  }

 private:
  std::vector<TokenId> tokens_;
  std::optional<FileTransformer<float>> transformer_;
  nlohmann::json table_;
  ThreadTeam team_{2};
};

TEST_CASE("perplexity: every format of keys and values costs what the reference says, and turned rows pay") {
  Measured measured;
  std::map<CacheFormat, double> found;
  for (const CacheFormat format : kCacheFormats)
    found[format] = visit_cache_format<float>(format, [&]<class K, class V>() {
      return measured.perplexity<K, V>(std::string(to_string(format)));
    });

  // By how much it is above that of rows left as they are.
  const auto cost = [&](CacheFormat format) { return found[format] / found[CacheFormat::kNative] - 1.0; };
  using Format = CacheFormat;
  CHECK(cost(Format::kInt8HadInt4) < 0.003);
  CHECK(cost(Format::kInt8Turbo3) < 0.003);
  // Formats of as many bits, those that turn rows before the others.
  CHECK(cost(Format::kHadInt4) < 0.85 * cost(Format::kInt4));
  CHECK(cost(Format::kTurbo4) < 0.85 * cost(Format::kInt4));
  CHECK(cost(Format::kHadInt3) < 0.6 * cost(Format::kInt3));
  CHECK(cost(Format::kTurbo3) < 0.5 * cost(Format::kInt3));
  // Fewer bits of a kind cost more.
  CHECK(cost(Format::kInt3) > cost(Format::kInt4));
  CHECK(cost(Format::kHadInt3) > cost(Format::kHadInt4));
  CHECK(cost(Format::kTurbo2) > cost(Format::kTurbo3));
  CHECK(cost(Format::kTurbo3) > cost(Format::kTurbo4));
}

TEST_CASE("perplexity: keys alone and values alone in few bits cost what the reference says, keys more") {
  Measured measured;
  const auto check = [&]<class F>(const std::string& name) {
    CHECK(measured.perplexity<F, F32>(name + "/native") > measured.perplexity<F32, F>("native/" + name));
  };
  check.operator()<Int4>("int4");
  check.operator()<Int3>("int3");
  check.operator()<HadInt4>("had_int4");
  check.operator()<HadInt3>("had_int3");
}

}  // namespace
