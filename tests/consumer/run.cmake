# SPDX-License-Identifier: MIT
# Configures, builds and runs the consumer, from nothing.
# usage: cmake -DHOW=… -DCOMPONENTS=… -DSOURCE=<repository> -DBUILD=<its build folder> -DWORK=<scratch folder>
#              -DCOMPILER=<C++ compiler> -DABSENT=<packages that are not to be found> -P run.cmake
# Lists are separated by commas.
cmake_minimum_required(VERSION 3.24)

function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${SOURCE}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

set(arguments)
if(HOW STREQUAL "installed")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
  list(APPEND arguments "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
elseif(HOW STREQUAL "subdirectory")
  list(APPEND arguments "-DKVDECODE_SOURCE=${SOURCE}")
else()
  # What a release archive needs at least: not the tests, the bench or the examples.
  run("${CMAKE_COMMAND}" -E tar czf "${WORK}/kvdecode.tar.gz" CMakeLists.txt .cmake include)
  list(APPEND arguments "-DKVDECODE_ARCHIVE=${WORK}/kvdecode.tar.gz")
endif()
string(REPLACE "," ";" absent_packages "${ABSENT}")
foreach(package IN LISTS absent_packages)
  list(APPEND arguments "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
endforeach()

run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DHOW=${HOW}" "-DCOMPONENTS=${COMPONENTS}" ${arguments})
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/consumer")
