# The generators read packages of the module in which they run, and are tools of this one.
set -e
here=basalt.dev/basalt/api/v1beta1
apply=$(go tool -n applyconfiguration-gen)
client=$(go tool -n client-gen)
schema=$(mktemp)
trap 'rm -f "$schema"' EXIT
go run ./schema ../../deploy/crds > "$schema"
cd ../..
rm -rf api/v1beta1/applyconfiguration api/v1beta1/clientset
$apply --openapi-schema "$schema" --output-dir api/v1beta1/applyconfiguration --output-pkg $here/applyconfiguration \
  ./api/v1beta1
$client --clientset-name clientset --output-dir api/v1beta1 --output-pkg $here \
  --apply-configuration-package $here/applyconfiguration --input-base basalt.dev/basalt --input api/v1beta1
