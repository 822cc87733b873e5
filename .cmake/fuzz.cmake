# SPDX-License-Identifier: MIT
# tests/fuzz/NAME_fuzz.cpp -> target and program <build>/fuzz/NAME_fuzz, for libFuzzer; <build>/fuzz/seeds/NAME holds
# what it begins with (target kvdecode_fuzz_seeds). tests/fuzz/README.md says how to run them.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "KVDECODE_BUILD_FUZZERS needs clang, which brings libFuzzer; got ${CMAKE_CXX_COMPILER}")
endif()

enable_testing()
set(fuzz_dir "${PROJECT_SOURCE_DIR}/tests/fuzz")
file(GLOB fuzz_sources CONFIGURE_DEPENDS "${fuzz_dir}/*_fuzz.cpp")
foreach(source IN LISTS fuzz_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${name} PRIVATE kvdecode::pipeline kvdecode::native)
  # Optimized, whatever the build type: a fuzzer finds by trying.
  target_compile_options(${name} PRIVATE -O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all
                         -fsanitize=fuzzer,address,undefined)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/fuzz>")
  list(APPEND fuzz_targets ${name})
  string(REGEX REPLACE "_fuzz$" "" kind "${name}")
  add_test(NAME fuzz.${kind} COMMAND ${name} -runs=0 "${PROJECT_BINARY_DIR}/fuzz/seeds/${kind}")
  set_tests_properties(fuzz.${kind} PROPERTIES LABELS fuzz)
endforeach()
add_custom_target(kvdecode_fuzzers DEPENDS ${fuzz_targets} kvdecode_fuzz_seeds)

add_executable(kvdecode_write_fuzz_seeds EXCLUDE_FROM_ALL "${fuzz_dir}/write_seeds.cpp")
target_include_directories(kvdecode_write_fuzz_seeds PRIVATE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(kvdecode_write_fuzz_seeds PRIVATE kvdecode::pipeline)
add_custom_target(kvdecode_fuzz_seeds
                  COMMAND kvdecode_write_fuzz_seeds "${PROJECT_SOURCE_DIR}/tests/data"
                          "${PROJECT_BINARY_DIR}/fuzz/seeds")
