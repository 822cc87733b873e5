# SPDX-License-Identifier: MIT
# bench/*_bench.cpp and bench_main.cpp -> one program, <build>/bench/kvdecode_bench.
find_package(benchmark CONFIG REQUIRED)

file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*_bench.cpp")
if(bench_sources)
  add_executable(kvdecode_bench "${PROJECT_SOURCE_DIR}/bench/bench_main.cpp" ${bench_sources})
  target_link_libraries(kvdecode_bench PRIVATE kvdecode::native benchmark::benchmark)
  # g++ 12 warns of its own AVX-512 intrinsics inside Eigen's products, which are the baseline here.
  target_compile_options(kvdecode_bench PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(TARGET kvdecode::compiled)
    target_link_libraries(kvdecode_bench PRIVATE kvdecode::compiled)
  endif()
  set_target_properties(kvdecode_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/bench>")
endif()

# bench/bench_model.cpp -> <build>/bench/bench_model, where what it reads models and arguments with is there.
find_package(CLI11 CONFIG QUIET)
if(TARGET kvdecode::pipeline AND TARGET CLI11::CLI11)
  add_executable(bench_model "${PROJECT_SOURCE_DIR}/bench/bench_model.cpp")
  target_link_libraries(bench_model PRIVATE kvdecode::pipeline kvdecode::native CLI11::CLI11)
  if(TARGET kvdecode::compiled)
    target_link_libraries(bench_model PRIVATE kvdecode::compiled)
  endif()
  set_target_properties(bench_model PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/bench>")
endif()
