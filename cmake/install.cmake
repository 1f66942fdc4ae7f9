# The targets that other projects link, and the files of `cmake --install`: headers, libraries, the CMake package,
# larklane.pc (of the MPI families) and larklane-native.pc. The top level includes it last.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
option(LARKLANE_INSTALL "Make the install rules" ${PROJECT_IS_TOP_LEVEL})

# The public headers; larklane::headers for C programs with an mpi.h that lacks the partitioned calls.
add_library(larklane_headers INTERFACE)
add_library(larklane::headers ALIAS larklane_headers)
set_target_properties(larklane_headers PROPERTIES EXPORT_NAME headers)
target_include_directories(larklane_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# The library of native programs: larklane::larklane.
target_include_directories(larklane_native INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(larklane_native PROPERTIES EXPORT_NAME larklane
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# One library for each built ABI family: larklane::mpi_mpich, larklane::mpi_ompi, larklane::mpi_abi.
set(LARKLANE_FAMILIES)
set(family_targets)
foreach(family mpich ompi abi)
  if(TARGET larklane_mpi_${family})
    list(APPEND LARKLANE_FAMILIES ${family})
    list(APPEND family_targets larklane_mpi_${family})
    add_library(larklane::mpi_${family} ALIAS larklane_mpi_${family})
    set_target_properties(larklane_mpi_${family} PROPERTIES EXPORT_NAME mpi_${family}
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
endforeach()

if(NOT LARKLANE_INSTALL)
  return()
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/larklane DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS larklane_headers larklane_native ${family_targets} EXPORT larklaneTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/larklane)
install(EXPORT larklaneTargets NAMESPACE larklane:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/larklaneConfig.cmake.in ${PROJECT_BINARY_DIR}/larklaneConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/larklaneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/larklaneConfig.cmake ${PROJECT_BINARY_DIR}/larklaneConfigVersion.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH LARKLANE_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
foreach(package larklane larklane-native)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/larklane.pc ${PROJECT_BINARY_DIR}/larklane-native.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
