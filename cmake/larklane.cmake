# Options, warnings and sanitizers: target properties only, through larklane_target(NAME).
option(LARKLANE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(LARKLANE_BUILD_TOOLS "Build the command" ${PROJECT_IS_TOP_LEVEL})
option(LARKLANE_BUILD_EXAMPLES "Build the examples, for each MPI found" ${LARKLANE_BUILD_TOOLS})
option(LARKLANE_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
set(LARKLANE_SANITIZE "" CACHE STRING "Sanitizers: thread, or address,undefined")
set(LARKLANE_WITH_MPI AUTO CACHE STRING "The MPI face: AUTO (for the ABI families whose headers are found), ON or OFF")
set(LARKLANE_TEST_KINDS "unit;prop;mp;race;fault;conformance;protocol;consume;tidy" CACHE STRING
  "Folders of tests/ that are built")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
find_package(Threads REQUIRED)
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(LARKLANE_CCACHE ccache)
  if(LARKLANE_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${LARKLANE_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${LARKLANE_CCACHE})
  endif()
endif()

function(larklane_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<BOOL:${LARKLANE_WERROR}>:-Werror> $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
  if(LARKLANE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${LARKLANE_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${LARKLANE_SANITIZE})
  endif()
endfunction()
