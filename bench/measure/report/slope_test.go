package report

import (
	"math"
	"testing"
)

func TestSlope(t *testing.T) {
	x := []float64{0, 10, 20, 30, 40}
	if s := slope(x, []float64{5, 6, 7, 8, 9}); math.Abs(s.PerHour-360) > 1e-9 || s.Error > 1e-6 || s.Flat() {
		t.Errorf("a rise of 0.1 a second: %+v", s)
	}
	if s := slope(x, []float64{5, 7, 5, 7, 5}); !s.Flat() || s.PerHour != 0 {
		t.Errorf("up and down: %+v", s)
	}
	// Against a table: x 0..4, y 1 3 2 5 4 has slope 0.8, standard error 0.3464, t 3.182 for 3 degrees.
	if s := slope([]float64{0, 1, 2, 3, 4}, []float64{1, 3, 2, 5, 4}); math.Abs(s.PerHour/3600-0.8) > 1e-9 || math.Abs(s.Error/3600-3.182*0.34641) > 1e-3 {
		t.Errorf("a known fit: %v +- %v", s.PerHour/3600, s.Error/3600)
	}
	if s := slope(x[:2], x[:2]); !s.Flat() {
		t.Error("two points say nothing of their error")
	}
}
