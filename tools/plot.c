/* plot.c - see plot.h. */
#include "plot.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { WIDTH = 760, LEFT = 76, RIGHT = 24, TOP = 74, PANEL = 220, GAP = 34, BOTTOM = 52, TICKS = 5 };

/* Text that grows; after a failed allocation it stays as it is and `failed` is set. */
typedef struct picture { arena *a; char *text; size_t n, room; int failed; } picture;

TOOL_PRINTF(2, 3) static void put(picture *s, const char *format, ...)
{
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(s->text + s->n, s->room - s->n, format, args);
    va_end(args);
    if (n < 0) s->failed = 1;
    else if ((size_t)n < s->room - s->n) s->n += (size_t)n;
    else {
        const size_t room = 2 * s->room + (size_t)n;
        char *text = arena_text(s->a, room);
        if (!text) {
            s->failed = 1;
            return;
        }
        memcpy(text, s->text, s->n);
        s->text = text;
        s->room = room;
        va_start(args, format);
        vsnprintf(s->text + s->n, s->room - s->n, format, args);
        va_end(args);
        s->n += (size_t)n;
    }
}

/* Text between tags: what XML reserves is written as a name. */
static void put_text(picture *s, const char *text)
{
    for (; *text; text++) {
        const char *name = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
        if (name) put(s, "%s", name);
        else put(s, "%c", *text);
    }
}

/* The step between about TICKS ticks up to `most`: 1, 2 or 5 times a power of ten. */
static double tick_step(double most)
{
    const double raw = most / TICKS, power = pow(10, floor(log10(raw)));
    const double part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static double largest(const double *y, int n, double most)
{
    int i;
    for (i = 0; y && i < n; i++) if (y[i] > most) most = y[i];
    return most;
}

typedef struct scale { double x_most, y_most; int top; } scale; /* top: of the panel, in pixels */

static double x_at(const scale *s, double x) { return LEFT + x / s->x_most * (WIDTH - LEFT - RIGHT); }
static double y_at(const scale *s, double y) { return s->top + PANEL - y / s->y_most * PANEL; }

static void put_axes(picture *out, const plot *p, const plot_panel *panel, const scale *s, int last)
{
    const double dy = tick_step(s->y_most), dx = tick_step(s->x_most);
    double v;
    for (v = 0; v <= s->y_most * 1.0001; v += dy) {
        put(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y_at(s, v), WIDTH - RIGHT);
        put(out, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%g</text>\n", LEFT - 8, y_at(s, v) + 4, v);
    }
    for (v = 0; v <= s->x_most * 1.0001; v += dx) {
        put(out, "<path class=\"tick\" d=\"M%.1f %dv5\"/>", x_at(s, v), s->top + PANEL);
        if (last) put(out, "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%g</text>\n", x_at(s, v), s->top + PANEL + 20, v);
    }
    put(out, "<path class=\"axis\" d=\"M%d %dv%dh%d\"/>\n", LEFT, s->top, PANEL, WIDTH - LEFT - RIGHT);
    put(out, "<text class=\"mid\" transform=\"translate(18 %d) rotate(-90)\">", s->top + PANEL / 2);
    put_text(out, panel->y_label);
    put(out, "</text>\n");
    if (!last) return;
    put(out, "<text class=\"mid\" x=\"%d\" y=\"%d\">", (LEFT + WIDTH - RIGHT) / 2, s->top + PANEL + 42);
    put_text(out, p->x_label);
    put(out, "</text>\n");
}

static void put_band(picture *out, const plot *p, const plot_curve *c, const scale *s, int color)
{
    int i;
    if (!c->low || !c->high || p->n_points < 2) return;
    put(out, "<path class=\"band c%d\" d=\"", color);
    for (i = 0; i < p->n_points; i++)
        put(out, "%c%.1f %.1f", i ? 'L' : 'M', x_at(s, p->x[i]), y_at(s, c->high[i]));
    for (i = p->n_points - 1; i >= 0; i--) put(out, "L%.1f %.1f", x_at(s, p->x[i]), y_at(s, c->low[i]));
    put(out, "Z\"/>\n");
}

static void put_curve(picture *out, const plot *p, const plot_curve *c, const scale *s, int color)
{
    int i, pen = 0;
    put(out, "<path class=\"line c%d%s\" d=\"", color, c->style == PLOT_DASHED ? " dashed" : "");
    for (i = 0; i < p->n_points; i++) {
        if (c->y[i] >= 0) put(out, "%c%.1f %.1f", pen ? 'L' : 'M', x_at(s, p->x[i]), y_at(s, c->y[i]));
        pen = c->y[i] >= 0;
    }
    put(out, "\"/>\n");
    for (i = 0; c->style == PLOT_SOLID && i < p->n_points; i++) {
        if (c->y[i] < 0) continue;
        put(out, "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\">", color, x_at(s, p->x[i]),
            y_at(s, c->y[i]));
        put(out, "<title>%g: %.4g</title></circle>\n", p->x[i], c->y[i]);
    }
}

/* One line a curve, in the panel's upper right corner. */
static void put_legend(picture *out, const plot_panel *panel, const scale *s)
{
    int i;
    for (i = 0; i < panel->n_curves; i++) {
        const int y = s->top + 16 + 18 * i;
        put(out, "<path class=\"line c%d%s\" d=\"M%d %dh26\"/>", i,
            panel->curves[i].style == PLOT_DASHED ? " dashed" : "", WIDTH - RIGHT - 30, y);
        put(out, "<text class=\"end\" x=\"%d\" y=\"%d\">", WIDTH - RIGHT - 38, y + 4);
        put_text(out, panel->curves[i].label);
        put(out, "</text>\n");
    }
}

static void put_panel(picture *out, const plot *p, int index)
{
    const plot_panel *panel = &p->panels[index];
    scale s;
    int i;
    s.top = TOP + index * (PANEL + GAP);
    s.x_most = largest(p->x, p->n_points, 0);
    s.y_most = 0;
    for (i = 0; i < panel->n_curves; i++) {
        s.y_most = largest(panel->curves[i].y, p->n_points, s.y_most);
        s.y_most = largest(panel->curves[i].high, p->n_points, s.y_most);
    }
    s.x_most = s.x_most > 0 ? s.x_most : 1;
    s.y_most = s.y_most > 0 ? s.y_most : 1;
    s.y_most = tick_step(s.y_most) * ceil(s.y_most / tick_step(s.y_most));
    put_axes(out, p, panel, &s, index == p->n_panels - 1);
    for (i = 0; i < panel->n_curves; i++) put_band(out, p, &panel->curves[i], &s, i);
    for (i = 0; i < panel->n_curves; i++) put_curve(out, p, &panel->curves[i], &s, i);
    put_legend(out, panel, &s);
}

static const char style[] =
    "<style>\n"
    "svg{background:#fff;color:#222;font:13px system-ui,sans-serif}text{fill:currentColor}\n"
    ".title{font-size:18px;font-weight:600}.end{text-anchor:end}.mid{text-anchor:middle}\n"
    ".grid{stroke:#8883}.axis,.tick{fill:none;stroke:currentColor}.line{fill:none;stroke-width:2}\n"
    ".dashed{stroke-dasharray:6 4}.band{stroke:none;opacity:.18}\n"
    ".line.c0{stroke:#0b62c4}.dot.c0,.band.c0{fill:#0b62c4}.line.c1{stroke:#c2410c}.dot.c1,.band.c1{fill:#c2410c}\n"
    "@media (prefers-color-scheme:dark){svg{background:#16181c;color:#e6e6e6}\n"
    ".line.c0{stroke:#6cb2ff}.dot.c0,.band.c0{fill:#6cb2ff}.line.c1{stroke:#ff9b63}.dot.c1,.band.c1{fill:#ff9b63}}\n"
    "</style>\n";

char *plot_svg(const plot *p, arena *a)
{
    const int height = TOP + p->n_panels * (PANEL + GAP) - GAP + BOTTOM;
    picture out = { NULL, NULL, 0, 4096, 0 };
    int i;
    out.a = a;
    out.text = arena_text(a, out.room);
    if (!out.text) return NULL;
    put(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
        "aria-labelledby=\"t d\">\n<title id=\"t\">", WIDTH, height, WIDTH, height);
    put_text(&out, p->title);
    put(&out, "</title><desc id=\"d\">");
    put_text(&out, p->subtitle);
    put(&out, "</desc>\n%s<text class=\"title\" x=\"24\" y=\"30\">", style);
    put_text(&out, p->title);
    put(&out, "</text>\n<text x=\"24\" y=\"52\">");
    put_text(&out, p->subtitle);
    put(&out, "</text>\n");
    for (i = 0; i < p->n_panels; i++) put_panel(&out, p, i);
    put(&out, "</svg>\n");
    return out.failed ? NULL : out.text;
}
