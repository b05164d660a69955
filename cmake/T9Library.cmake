# libtempo9, shared and static, and what other programs need to find it: header, pkg-config file, CMake package.
#
# Both have the same symbols: those that tempo9.h marks, and no others. The shared one gets them by hidden visibility; the
# static one is a single object of all modules whose hidden symbols have been made local, so that our short internal
# names never meet the embedding program's. tests/run/symbols_test.py looks at both.

include(CMakePackageConfigHelpers)

set(library_parts t9_sdk t9_engine t9_sample t9_kv t9_model t9_backend t9_template t9_tokenizer t9_gguf t9_base)
get_target_property(yyjson_type t9_yyjson TYPE)
if(yyjson_type STREQUAL "STATIC_LIBRARY")
    list(APPEND library_parts t9_yyjson)
endif()

# ---- shared ----

# Before 1.0, a new minor version may break programs.
set(library_soversion "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
add_library(tempo9_shared SHARED $<TARGET_OBJECTS:t9_sdk>)
target_link_libraries(tempo9_shared PRIVATE
    t9_engine t9_sample t9_kv t9_model t9_backend t9_template t9_tokenizer t9_gguf t9_base t9_build_info t9_flags)
set_target_properties(tempo9_shared PROPERTIES
    OUTPUT_NAME tempo9 VERSION "${PROJECT_VERSION}" SOVERSION "${library_soversion}" LINKER_LANGUAGE C)
if(NOT APPLE)
    set(library_exports "${CMAKE_CURRENT_BINARY_DIR}/exports.map")
    file(WRITE "${library_exports}" "{ global: t9_*; local: *; };\n")
    target_link_options(tempo9_shared PRIVATE "-Wl,--version-script=${library_exports}")
    if(NOT T9_SANITIZE)
        target_link_options(tempo9_shared PRIVATE -Wl,--no-undefined)
    endif()
endif()

# ---- static ----

set(library_archive "${CMAKE_CURRENT_BINARY_DIR}/libtempo9.a")
set(library_object "${CMAKE_CURRENT_BINARY_DIR}/tempo9.o")
set(library_archives "")
foreach(part IN LISTS library_parts)
    list(APPEND library_archives "$<TARGET_FILE:${part}>")
endforeach()
if(CMAKE_OBJCOPY AND NOT APPLE)
    add_custom_command(
        OUTPUT "${library_archive}"
        COMMAND "${CMAKE_C_COMPILER}" -r -nostdlib -o "${library_object}" -Wl,--whole-archive ${library_archives}
                -Wl,--no-whole-archive
        COMMAND "${CMAKE_OBJCOPY}" --localize-hidden
                "--keep-global-symbols=${CMAKE_CURRENT_BINARY_DIR}/public.txt" "${library_object}"
        COMMAND "${CMAKE_COMMAND}" -E rm -f "${library_archive}"
        COMMAND "${CMAKE_AR}" qcs "${library_archive}" "${library_object}"
        DEPENDS ${library_parts} "${CMAKE_CURRENT_BINARY_DIR}/public.txt"
        COMMENT "Linking libtempo9.a"
        VERBATIM)
    add_custom_target(tempo9_static ALL DEPENDS "${library_archive}")
    # The names in the header: what a library of others brings with default visibility stays inside, too.
    file(STRINGS "${CMAKE_SOURCE_DIR}/include/tempo9.h" header_lines REGEX "^T9_API")
    set(public_names "")
    foreach(line IN LISTS header_lines)
        if(line MATCHES "(t9_[a-z0-9_]+)\\(")
            string(APPEND public_names "${CMAKE_MATCH_1}\n")
        endif()
    endforeach()
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/public.txt" CONTENT "${public_names}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/include/tempo9.h")
else()
    set(library_archive "")
endif()
add_custom_target(tempo9_libraries DEPENDS tempo9_shared)
if(library_archive)
    add_dependencies(tempo9_libraries tempo9_static)
endif()

# ---- what others need ----

# Libraries that a program with the static one links, too.
set(library_requires "libutf8proc libxxhash")
if(T9_CRYPTO)
    string(APPEND library_requires " libcrypto")
endif()
if(NOT yyjson_type STREQUAL "STATIC_LIBRARY")
    string(APPEND library_requires " yyjson")
endif()
# Found from where the file is, so that the installed folder can be moved.
file(RELATIVE_PATH library_up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
configure_file("${CMAKE_SOURCE_DIR}/cmake/tempo9.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/tempo9.pc" @ONLY)
set(library_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tempo9")
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/tempo9Config.cmake.in"
    "${CMAKE_CURRENT_BINARY_DIR}/tempo9Config.cmake"
    INSTALL_DESTINATION "${library_cmake_dir}" PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/tempo9ConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)

install(TARGETS tempo9_shared LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library OPTIONAL)
if(library_archive)
    install(FILES "${library_archive}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library OPTIONAL)
endif()
install(FILES "${CMAKE_SOURCE_DIR}/include/tempo9.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT library)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tempo9.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT library)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tempo9Config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/tempo9ConfigVersion.cmake"
        DESTINATION "${library_cmake_dir}" COMPONENT library)
