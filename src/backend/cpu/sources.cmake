# The cpu backend: its sources, and the instruction set flags of the kernel files alone. Included by
# backend/CMakeLists.txt.
list(APPEND backend_sources
    cpu/attn.c
    cpu/cpu.c
    cpu/experts.c
    cpu/limits.c
    cpu/matmul.c
    cpu/pack.c
    cpu/pool.c
    cpu/product.c
    cpu/rows.c
    cpu/slab.c
    cpu/state.c
)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    list(APPEND backend_sources cpu/kernels/avx2.c cpu/kernels/avx512.c)
    list(APPEND backend_defines T9_CPU_X86=1)
    # -O2 in debug builds too: these files are nothing but inlined lane operations. -g1, because following every
    # variable through the unrolled loops doubles the time that a sanitizer's build takes.
    set_source_files_properties(cpu/kernels/avx2.c PROPERTIES
        COMPILE_OPTIONS "-O2;-g1;-mavx2;-mfma;-mf16c")
    set_source_files_properties(cpu/kernels/avx512.c PROPERTIES
        COMPILE_OPTIONS "-O2;-g1;-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni")
    if(T9_SANITIZE)
        # Tiles differ in a constant only; with those of 5, 6 and 7 rows the file takes half as long again to compile.
        set_property(SOURCE cpu/kernels/avx512.c APPEND PROPERTY COMPILE_DEFINITIONS T9_TILES_FEW=1)
    endif()
    if(T9_FUZZ)
        # No fuzz target is about them, and instrumented they take clang minutes.
        set_property(SOURCE cpu/kernels/avx2.c cpu/kernels/avx512.c APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize=all")
    endif()
    # The families' .inc files are not scanned as headers by every generator.
    set_source_files_properties(cpu/kernels/avx2.c cpu/kernels/avx512.c PROPERTIES
        OBJECT_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/matmul.inc;${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/matmul_few.inc;${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/matmul_any.inc;${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/rows.inc;${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/attn.inc;${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels/state.inc")
endif()
