# SPDX-License-Identifier: MIT
# The headers, all of them, and the CMake package: find_package(kvdecode [COMPONENTS io text pipeline compiled]).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/kvdecode")  # share/: nothing here depends on the machine

install(TARGETS kvdecode EXPORT kvdecodeTargets FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
# The file set has the core only, and components are installed whether this build defines them or not.
install(DIRECTORY "${include_dir}/kvdecode" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "compiled_*.cpp")
install(EXPORT kvdecodeTargets NAMESPACE kvdecode:: DESTINATION "${package_dir}")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/kvdecodeConfig.cmake.in" kvdecodeConfig.cmake
                              INSTALL_DESTINATION "${package_dir}" PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(kvdecodeConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kvdecodeConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/kvdecodeConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/components.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindPCRE2.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/Findutf8proc.cmake"
        DESTINATION "${package_dir}")
