// SPDX-License-Identifier: MIT
// <kvdecode/core/progress.hpp> - how long work tells how far it is, and is told to stop.
#pragma once

#include <kvdecode/core/types.hpp>

#include <concepts>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {

/// A listener by reference: bool(Index done, Index total), false to stop the work. The default hears nothing
/// and goes on. What it refers to must outlive the call that it is given to.
class ProgressRef {
 public:
  ProgressRef() noexcept = default;
  template <std::predicate<Index, Index> F>
  ProgressRef(F& listener) noexcept requires(!std::same_as<std::remove_cvref_t<F>, ProgressRef>)
      : object_(const_cast<void*>(static_cast<const void*>(&listener))),
        call_([](void* object, Index done, Index total) -> bool {
          return (*static_cast<F*>(object))(done, total);
        }) {}

  bool operator()(Index done, Index total) const { return call_ == nullptr || call_(object_, done, total); }

 private:
  void* object_ = nullptr;
  bool (*call_)(void*, Index, Index) = nullptr;
};

}  // namespace kvdecode
