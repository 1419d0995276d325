package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"basalt.dev/basalt/api/metric"
)

// Expires returns when the certificate expires that these credentials show, and false if they show none.
func Expires(c credentials.TransportCredentials) (at time.Time, shown bool) {
	r, is := c.(*rotating)
	if !is {
		return at, false
	}
	config, err := r.config()
	if err != nil || config.GetClientCertificate == nil {
		return at, false
	}
	certificate, err := config.GetClientCertificate(nil)
	if err != nil || certificate == nil || certificate.Leaf == nil {
		return at, false
	}
	return certificate.Leaf.NotAfter, true
}

// Expiries is a collector of metric.CertificateExpiry: of the credentials that a process uses, by what they are for.
// The files are read at each scrape.
type Expiries map[string]credentials.TransportCredentials

// Describe implements prometheus.Collector.
func (e Expiries) Describe(out chan<- *prometheus.Desc) { out <- metric.CertificateExpiry.Desc() }

// Collect implements prometheus.Collector.
func (e Expiries) Collect(out chan<- prometheus.Metric) {
	for name, c := range e {
		if at, shown := Expires(c); shown {
			out <- prometheus.MustNewConstMetric(metric.CertificateExpiry.Desc(), prometheus.GaugeValue,
				float64(at.Unix()), name)
		}
	}
}
