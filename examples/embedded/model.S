/* The model's file as it is, in flash. `make embedded` gives MODEL_FILE. */
    .section .model, "a"
    .global model_file
    .balign 64
model_file:
    .incbin MODEL_FILE
#ifdef __ELF__
    .section .note.GNU-stack, "", %progbits
#endif
