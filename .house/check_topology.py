import glob,collections,re
old=collections.defaultdict(set); kind={}
for f in glob.glob("/tmp/map/*.names.tsv"):
    for l in open(f):
        m,n,k,*r=l.rstrip("\n").split("\t"); old[n].add(m); kind[m,n]=(k,r[-1])
F="/tmp/map/topology_core.map"
mine={}; new=collections.defaultdict(list); modn=[]
for i,l in enumerate(open(F),1):
    p=l.rstrip("\n").split("\t")
    if p[0].startswith("#"): continue
    if len(p)!=3: print("BAD LINE",i,p)
    if p[0]=="name": mine[p[1]]=p[2]; new[p[2]].append(p[1])
    if p[0]=="module": modn.append(p[2])
for o in mine:
    m,n=o.split(":")
    if m not in old[n]: print("NO SUCH",o)
othermaps={}
for f in glob.glob("/tmp/map/*.map"):
    if f!=F:
        for l in open(f):
            p=l.rstrip("\n").split("\t")
            if p[0]=="name" and len(p)>2:
                othermaps[p[1]]=p[2]
                if p[2] in new: print("OTHER MAP",f.split("/")[-1],p[1:],new[p[2]])
            if p[0]=="module" and p[-1] in modn: print("MOD CLASH",p)
for n,os in new.items():
    if len(os)>1: print("twice",n,os)
    others=[m for m in old.get(n,()) if f"{m}:{n}" not in mine and f"{m}:{n}" not in othermaps]
    if others: print("TAKEN",n,os,[(m,kind[m,n][1][:40]) for m in others])
    if len(n)>30: print("long",n)
c=collections.Counter()
for l in open("/tmp/map/topology.names.tsv"):
    m,n,k,*r=l.rstrip("\n").split("\t"); fl=r[-1]
    if re.match(r"topology\.(interop|rules)(\.|$|\t)",m): continue
    if f"{m}:{n}" not in mine:
        if "OWN-MODULE-ONLY" in fl and k=="const": c["own const"]+=1; continue
        print("kept",m,n,k,fl[:90]); c["kept"]+=1
print(c,len(mine),len(modn),collections.Counter(x.split("\t")[0] for x in open(F)))
