package check

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var pictureFolder = flag.String("pictures", "",
	"run a load for some minutes, and write a picture of each dashboard to this folder; needs chromium")

const resolution = 2 * time.Second // of a picture

// remove deletes gangs with their pods, some of which may not exist.
func (s *stage) remove(names ...string) {
	now := int64(0)
	for _, name := range names {
		for i := range 3 {
			_ = s.core.CoreV1().Pods("default").Delete(s.t.Context(), fmt.Sprint(name, "-", i), metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err := s.basalt.Delete().Namespace("default").Resource("podgroups").Name(name).Do(s.t.Context()).Error(); err != nil {
			s.t.Error(err)
		}
	}
}

// pictures draws what the dashboards show while gangs come and go. Grafana is not to be had where this runs, so a page
// of its own draws each panel from the panel's queries, unit and thresholds, in a real browser. Traces and logs need
// Tempo and Loki: their panels say so.
func (s *stage) pictures() {
	if *pictureFolder == "" {
		return
	}
	began := time.Now()
	for i := 0; time.Since(began) < 3*time.Minute; i++ {
		gangs := func(i int) (names []string) {
			for j := range 6 + i%7 {
				names = append(names, fmt.Sprintf("load-%d-%d", i, j))
			}
			if i%4 == 0 { // one of them fills its queue
				names = append(names, fmt.Sprint("big-", i))
			}
			return names
		}
		for j, name := range gangs(i) {
			if j == 6+i%7 {
				s.gang(name, leaf(3), 2, 2, "3200m", "64Mi")
			} else {
				s.gang(name, leaf(i*7+j), 3, 3, "200m", "64Mi")
			}
		}
		if i >= 12 {
			s.remove(gangs(i - 12)...)
		}
		if i == 60 {
			s.failover()
		}
		s.scrape()
		time.Sleep(time.Second)
	}
	store := newStore(s.t)
	for _, x := range s.scrapes {
		store.add(x)
	}
	for _, d := range dashboards(s.t) {
		page := board{Title: d.Title}
		for _, p := range d.Panels {
			page.add(store.draw(d, p, began.Add(15*time.Second), s.last().at))
		}
		s.shoot(strings.TrimPrefix(d.UID, "basalt-"), page)
	}
}

// draw asks the queries of a panel over a time.
func (s *store) draw(d dashboard, p panel, from, to time.Time) drawn {
	s.t.Helper()
	out := drawn{panel: p, from: float64(from.Unix()), to: float64(to.Unix())}
	for i, target := range p.Targets {
		if p.Datasource.Type != "prometheus" {
			break
		}
		expr := expand(d, target.Expr, "15s", true)
		q, err := s.engine.NewRangeQuery(s.t.Context(), s.db, nil, expr, from, to, resolution)
		if err != nil {
			s.t.Fatal(err)
		}
		m, err := q.Exec(s.t.Context()).Matrix()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, series := range m {
			l := line{Legend: target.LegendFormat, query: i, labels: map[string]string{}}
			series.Metric.Range(func(label labels.Label) {
				l.labels[label.Name] = label.Value
				l.Legend = strings.ReplaceAll(l.Legend, "{{"+label.Name+"}}", label.Value)
			})
			for _, f := range series.Floats {
				if f.F == f.F { // not NaN
					l.points = append(l.points, [2]float64{float64(f.T) / 1000, f.F})
				}
			}
			if len(l.points) > 0 {
				out.Lines = append(out.Lines, l)
			}
		}
		q.Close()
	}
	return out
}

// shoot has a browser draw a page.
func (s *stage) shoot(name string, page board) {
	s.t.Helper()
	html, err := filepath.Abs(filepath.Join(*pictureFolder, name+".html"))
	if err != nil {
		s.t.Fatal(err)
	}
	file, err := os.Create(html)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := boardPage.Execute(file, page); err != nil {
		s.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		s.t.Fatal(err)
	}
	png := strings.TrimSuffix(html, ".html") + ".png"
	shot := exec.CommandContext(s.t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu",
		"--hide-scrollbars", "--screenshot="+png,
		fmt.Sprintf("--window-size=%d,%d", boardWidth+16, page.Height()+56), "file://"+html)
	if text, err := shot.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", name, err, text)
	}
	s.t.Logf("drew %s", png)
}
