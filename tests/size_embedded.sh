#!/bin/sh
# Bytes of Thumb-2 code and of constants that kernels and blocks take on a Cortex-M4, without text and file.
#
#   sh tests/size_embedded.sh [BUILD]

out=${1:-build/embedded}
mkdir -p "$out" || exit 1

weigh() { # NAME FLAGS
    name=$1
    shift
    arm-none-eabi-gcc -std=c99 -Os -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 "$@" -I. \
        -c tests/size_embedded.c -o "$out/size.o" || exit 1
    arm-none-eabi-size -A "$out/size.o" |
        awk -v n="$name" '/^\.text/ { t += $2 } /^\.rodata/ { r += $2 }
                          END { printf "Cortex-M4, %s: %d bytes of code, %d of constants\n", n, t, r }'
}

weigh "all weight types"
weigh "Q8_0 alone" "-DTFM_TYPES=(1ull << TFM_Q8_0)"
weigh "Q8_0 alone, no messages" "-DTFM_TYPES=(1ull << TFM_Q8_0)" -DTFM_NO_MESSAGES
weigh "Q8_0 alone, no messages, no experts" "-DTFM_TYPES=(1ull << TFM_Q8_0)" -DTFM_NO_MESSAGES -DTFM_NO_EXPERTS
