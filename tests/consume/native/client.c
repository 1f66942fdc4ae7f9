/* A foreign program: C11, pedantic, our header, one message to itself. */
#include <larklane/larklane.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
  printf("%s: %s\n", what, larklane_last_error());
  return 1;
}

/* A put into memory of the library. */
static int put(larklane_context *context, larklane_vci *vci) {
  const char out[6] = "hello";
  larklane_region *region;
  larklane_post post;
  larklane_remote_region remote = LARKLANE_REMOTE_REGION_INIT;
  void *start;
  if (larklane_region_allocate(context, sizeof out, &region)) return failed("allocate");
  if (larklane_region_remote(region, &remote)) return failed("remote");
  if (larklane_region_start(region, &start)) return failed("start");
  do {
    if (larklane_vci_progress(vci, NULL)) return failed("progress");
    if (larklane_post_put(vci, &remote, 0, out, sizeof out, 0, 0, NULL, &post))
      return failed("put");
  } while (post == LARKLANE_RETRY);
  if (post != LARKLANE_DONE || strcmp(start, out) != 0) return failed("put");
  if (larklane_region_free(region)) return failed("region");
  return 0;
}

int main(void) {
  char in[6] = "", *out = "hello";
  larklane_context *context;
  larklane_vci *vci;
  larklane_completion_object *arrived;
  larklane_post post;
  int is_ready = 0;
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", LARKLANE_VERSION_MAJOR, LARKLANE_VERSION_MINOR,
           LARKLANE_VERSION_PATCH);
  if (strcmp(version, larklane_version()) != 0) {
    printf("the header is of version %s, the library of %s\n", version, larklane_version());
    return 1;
  }
  if (larklane_context_create(&context)) return failed("context");
  if (larklane_vci_create(context, &vci)) return failed("vci");
  if (larklane_synchronizer_create(context, 1, &arrived)) return failed("synchronizer");
  larklane_post_options options = LARKLANE_POST_OPTIONS_INIT;
  options.completion = arrived;
  options.signals_always = 1;
  do {
    if (larklane_vci_progress(vci, NULL)) return failed("progress");
    if (larklane_post_recv(vci, 0, 1, in, sizeof in, &options, NULL, &post)) return failed("recv");
  } while (post == LARKLANE_RETRY);
  do {
    if (larklane_vci_progress(vci, NULL)) return failed("progress");
    if (larklane_post_send(vci, 0, 1, out, sizeof in, NULL, &post)) return failed("send");
  } while (post == LARKLANE_RETRY);
  while (!is_ready)
    if (larklane_vci_progress(vci, NULL) || larklane_synchronizer_test(arrived, &is_ready))
      return failed("wait");
  /* The same in two pieces, and in a packet, to a receive each. */
  char pieces[6] = "", packed[6] = "";
  larklane_buffer parts[2] = {{out, 2}, {out + 2, 4}};
  larklane_packet packet = LARKLANE_PACKET_INIT;
  if (larklane_synchronizer_reset(arrived)) return failed("reset");
  if (larklane_post_recv(vci, 0, 2, pieces, sizeof pieces, &options, NULL, &post))
    return failed("recv");
  do {
    if (larklane_vci_progress(vci, NULL)) return failed("progress");
    if (larklane_post_send_buffers(vci, 0, 2, parts, 2, NULL, &post)) return failed("send");
  } while (post == LARKLANE_RETRY);
  for (is_ready = 0; !is_ready;)
    if (larklane_vci_progress(vci, NULL) || larklane_synchronizer_test(arrived, &is_ready))
      return failed("wait");
  if (larklane_synchronizer_reset(arrived)) return failed("reset");
  if (larklane_post_recv(vci, 0, 3, packed, sizeof packed, &options, NULL, &post))
    return failed("recv");
  if (larklane_packet_take(vci, &packet) || packet.buffer == NULL) return failed("take");
  memcpy(packet.buffer, out, sizeof packed);
  do {
    if (larklane_vci_progress(vci, NULL)) return failed("progress");
    if (larklane_post_send_packet(vci, 0, 3, &packet, sizeof packed, NULL, &post))
      return failed("send");
  } while (post == LARKLANE_RETRY);
  for (is_ready = 0; !is_ready;)
    if (larklane_vci_progress(vci, NULL) || larklane_synchronizer_test(arrived, &is_ready))
      return failed("wait");
  if (strcmp(pieces, out) != 0 || strcmp(packed, out) != 0) return failed("bytes");
  if (put(context, vci)) return 1;
  if (larklane_completion_object_free(arrived)) return failed("free");
  if (larklane_vci_destroy(vci) || larklane_context_destroy(context)) return failed("destroy");
  printf("%s\n", in);
  return strcmp(in, out) != 0;
}
