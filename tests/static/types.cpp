// SPDX-License-Identifier: MIT
// What the basic types are: signed indices, 32-bit tokens, errors that a std::exception handler catches.
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/executor.hpp>

#include <type_traits>

using namespace kvdecode;

static_assert(std::is_signed_v<Index> && sizeof(Index) == sizeof(void*));
static_assert(std::is_signed_v<TokenId> && sizeof(TokenId) == 4);
static_assert(std::is_base_of_v<std::runtime_error, Error>);

static_assert(std::is_trivially_copyable_v<TaskRef> && sizeof(TaskRef) == 2 * sizeof(void*));
static_assert(std::is_trivially_copyable_v<ExecutorRef> && sizeof(ExecutorRef) == 2 * sizeof(void*));
static_assert(std::is_constructible_v<ExecutorRef, SequentialExecutor&>);
static_assert(!std::is_constructible_v<ExecutorRef, SequentialExecutor>);
