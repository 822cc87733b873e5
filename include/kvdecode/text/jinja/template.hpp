// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/template.hpp> - a template of the Jinja subset, parsed once; rendering does not change
// it.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/evaluator.hpp>
#include <kvdecode/text/jinja/json_text.hpp>
#include <kvdecode/text/jinja/lexer.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/parser.hpp>
#include <kvdecode/text/jinja/syntax.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// A parsed template: a cheap handle on an immutable tree, which any threads may render.
class Template {
 public:
  /// @throws Error kBadFile with the line for text that is no template, kUnsupported beyond the limits.
  explicit Template(std::string_view source, const Limits& limits = {}) : limits_(limits) {
    if (source.size() > limits.max_template_bytes) {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: ", source.size(),
                              " bytes, at most max_template_bytes ", limits.max_template_bytes);
    }
    const std::size_t n_valid = kvdecode::detail::utf8_valid_prefix(source);
    if (n_valid != source.size()) {
      kvdecode::detail::raise(ErrorCode::kBadFile, "chat template: not valid UTF-8 at byte ", n_valid);
    }
    const std::string text = normalized_source(source);
    body_ = std::make_shared<const Body>(Parser(text, limits).run());
  }

  /// The text for the names in `context`, an object. Without a clock, strftime_now is not defined.
  /// @throws Error kBadArgument with the template's message, kUnsupported beyond the limits.
  std::string render(const Json& context, const Evaluator::Clock& clock = {}) const {
    if (!context.is_object()) {
      kvdecode::detail::raise(ErrorCode::kBadArgument, "chat template: the context is not an object");
    }
    Meter meter(limits_);
    Evaluator evaluator(meter, clock);
    for (auto item = context.begin(); item != context.end(); ++item) {
      evaluator.define(item.key(), from_json(meter, item.value()));
    }
    return evaluator.render(*body_);
  }

 private:
  Limits limits_;
  std::shared_ptr<const Body> body_;
};

}  // namespace jinja
}  // namespace kvdecode
